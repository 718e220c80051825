"""Scores answers off the event loop, in a guarded `Verifier`, one at a time.

An answer made to hang a scorer costs the verifier its time limit and a new worker, several seconds. So addresses take
turns (`Turns`). One at a time costs a fraction of a millisecond more than a batch, and tells which answer failed.
"""

import asyncio
from collections.abc import Callable

from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.verifier import Verifier
from shoal_host.judge.turns import Turns

PAUSE, LONGEST = 1.0, 30.0
"""Seconds before the next try if no worker can be started: the first time, and at most. The answers are on disk."""


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
