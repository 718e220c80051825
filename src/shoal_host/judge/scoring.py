"""Scores answers off the event loop, in a guarded `Verifier`, one at a time.

An answer made to hang a scorer costs the verifier its time limit and a new worker, several seconds. So addresses take
turns (`Turns`). One at a time costs a fraction of a millisecond more than a batch, and tells which answer failed.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator, Callable

from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.verifier import Verifier

PAUSE, LONGEST = 1.0, 30.0
"""Seconds before the next try if no worker can be started: the first time, and at most. The answers are on disk."""


class Turns:
    """Work that takes turns by who caused it, so that nobody's many or slow pieces delay everybody: the pieces of a
    party wait for each other, and only the first of them for the other parties. For one event loop.

    async with turns.of("192.0.2.7"):
        await asyncio.to_thread(work)
    """

    def __init__(self) -> None:
        self._turn = asyncio.Lock()
        self._parties: dict[str, asyncio.Lock] = {}
        self._waiting: Counter[str] = Counter()

    @contextlib.asynccontextmanager
    async def of(self, party: str) -> AsyncIterator[None]:
        """A turn of `party` (an address)."""
        self._waiting[party] += 1
        try:
            async with self._parties.setdefault(party, asyncio.Lock()), self._turn:  # a lock's waiters stand in line
                yield
        finally:
            self._waiting[party] -= 1
            if not self._waiting[party]:
                del self._waiting[party], self._parties[party]

    def waiting(self, party: str) -> int:
        """How many pieces of its work are not done."""
        return self._waiting[party]


class Scoring:
    """Close it; answers that are not scored then are on disk."""

    def __init__(self, verifier: Verifier, note: Callable[[str], None] = lambda _: None) -> None:
        """`note`: called with what its owner should know."""
        self._verifier, self._note = verifier, note
        self._turns = Turns()
        self.waiting, self.close = self._turns.waiting, verifier.close

    async def score(self, question: QuestionId, text: str, party: str) -> tuple[float, str]:
        """The score of `text`, and why it got none if it was not simply wrong. `party`: whose turn it uses, usually its
        sender's address."""
        pause = PAUSE
        async with self._turns.of(party):
            while True:
                try:
                    return await asyncio.to_thread(self._score, question, text)
                except UserError as error:
                    self._note(f"answers wait to be scored: {error}")
                await asyncio.sleep(pause)
                pause = min(LONGEST, 2 * pause)

    def _score(self, question: QuestionId, text: str) -> tuple[float, str]:
        before = self._verifier.failures.copy()
        [[score]] = self._verifier.score([(question, [text])])
        return score, next(iter(self._verifier.failures - before), "")
