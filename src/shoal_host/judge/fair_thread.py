"""A thread whose work takes turns by who caused it, so that nobody's slow work delays everybody.

    thread = FairThread("score")
    thread.submit("192.0.2.7", work)     # a future of what `work()` returns

Next is always the party (an address) that has used the least time so far. A new party starts where the others are, with
neither credit nor debt (start-time fair queueing). So if k parties always have work, each gets 1/k of the time however
long its work takes, and a newcomer waits for the current work and for at most one more of each party that came with it.
"""

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Final, TypeVar

PARTIES: Final = 65_536
"""Parties whose time is remembered."""
T = TypeVar("T")


class FairThread:
    """Close it: what has not begun is then cancelled."""

    def __init__(self, name: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[str, deque[tuple[Future[Any], Callable[[], Any]]]] = {}
        self._spent: OrderedDict[str, float] = OrderedDict()
        """Seconds used by each party, from where it started."""
        self._now = 0.0
        """What the party had used whose work is running: where newcomers start."""
        self._closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name=f"shoal-judge-{name}", daemon=True)
        self._thread.start()

    def submit(self, party: str, work: Callable[[], T]) -> Future[T]:
        """The future result of `work`; cancelled if the queue is closed first."""
        future: Future[T] = Future()
        with self._changed:
            if self._closed:
                future.cancel()
                return future
            if party not in self._waiting:
                self._waiting[party] = deque()
                self._remember(party, max(self._now, self._spent_by(party)))
            self._waiting[party].append((future, work))
            self._changed.notify()
        return future

    def waiting(self, party: str) -> int:
        """How many pieces of its work have not begun."""
        with self._changed:
            return len(self._waiting.get(party, ()))

    def close(self) -> None:
        """Ends after the current work."""
        with self._changed:
            self._closed = True
            for queue in self._waiting.values():
                for future, _ in queue:
                    future.cancel()
            self._waiting.clear()
            self._changed.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._waiting and not self._closed:
                    self._changed.wait()
                if self._closed:
                    return
                party = min(self._waiting, key=self._spent_by)  # of equals, the one that has waited longest
                self._now = max(self._now, self._spent_by(party))
                future, work = self._waiting[party].popleft()
            began = self._clock()
            if future.set_running_or_notify_cancel():
                try:
                    future.set_result(work())
                except BaseException as error:
                    future.set_exception(error)
            with self._changed:
                self._remember(party, self._spent_by(party) + self._clock() - began)
                queue = self._waiting.pop(party, None)
                if queue:
                    self._waiting[party] = queue

    def _spent_by(self, party: str) -> float:
        return self._spent.get(party, self._now)

    def _remember(self, party: str, spent: float) -> None:
        self._spent[party] = spent
        self._spent.move_to_end(party)
        while len(self._spent) > PARTIES:
            self._spent.popitem(last=False)
