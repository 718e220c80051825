"""Work that takes turns by who caused it, so that nobody's many or slow pieces delay everybody.

    async with turns.of("192.0.2.7"):
        await asyncio.to_thread(work)       # one piece at a time; then one of each other party that waits

The pieces of a party wait for each other, and only the first of them for the other parties. So a newcomer waits for the
current piece and for at most one more of each party that came before.
"""

import asyncio
import contextlib
from collections import Counter
from collections.abc import AsyncIterator


class Turns:
    """For one event loop."""

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
