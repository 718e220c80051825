"""Queues between threads that never wait for each other: bounded, they lose the oldest, and count what they lost."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

FORGET = 4096
"""Nodes of which it is remembered what they cost."""
WINDOW = 10
"""Seconds that rates are taken over."""


class Newest(Generic[T]):
    """A queue of the newest `size` items: nobody waits to put something in, and the oldest are lost."""

    def __init__(self, size: int) -> None:
        self.lost = 0
        self._items: deque[T] = deque(maxlen=size)
        self._size = size
        self._came = threading.Condition()

    def __len__(self) -> int:
        return len(self._items)

    def put(self, items: Sequence[T]) -> None:
        with self._came:
            self.lost += max(0, len(self._items) + len(items) - self._size)
            self._items.extend(items)
            self._came.notify()

    def take(self, timeout: float = 0.0) -> list[T]:
        """All there are, oldest first; waits up to `timeout` seconds for the first."""
        with self._came:
            if timeout:
                self._came.wait_for(lambda: bool(self._items), timeout)
            items = list(self._items)
            self._items.clear()
            return items


class FairQueue(Generic[T]):
    """Items that wait for their turn: the node whose items have cost least time, with the next one at what its last one
    cost, goes next (after Demers et al., 1989). So a node that sends much, or what takes long to examine, holds up
    itself.

    Known nodes and newcomers have a lane each, and the lanes take turns in the same way: however many newcomers there
    are, they get half of the time at most while known nodes wait.

    At most `each` items of one node wait, and `size` bytes in all. The oldest are lost, of whom has most there.
    """

    def __init__(self, each: int, size: int, entry: float = 0.0) -> None:
        """`entry`: the seconds that the first item of a node is taken to cost, so that nodes of which it is known that
        they are quick go first."""
        self.lost = 0
        self._entry = entry
        self._each = each
        self._size = size
        self._queues: dict[str, deque[tuple[T, int]]] = {}
        self._bytes: Counter[str] = Counter()
        self._known: set[str] = set()
        self._spent: dict[str, float] = {}
        """Seconds of each node: those that it cost, and those that others cost while it was idle."""
        self._last: dict[str, float] = {}
        """Seconds that the last item of each node cost."""
        self._spent_in = {False: 0.0, True: 0.0}
        """The same of the lanes of newcomers and of known nodes."""
        self._now = {False: 0.0, True: 0.0}
        """What had been spent, in each lane, by the one whose turn came last."""
        self._came = threading.Condition()

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def put(self, id: str, item: T, size: int) -> None:
        """Adds an item of node `id`, of `size` bytes."""
        with self._came:
            if id not in self._queues:
                lane = id in self._known
                self._queues[id] = deque()
                self._spent[id] = max(self._spent.get(id, 0.0), self._now[lane])
            self._queues[id].append((item, size))
            self._bytes[id] += size
            if len(self._queues[id]) > self._each:
                self._lose(id)
            while self._bytes.total() > self._size:
                self._lose(max(self._bytes, key=lambda id: self._bytes[id]))
            self._came.notify()

    def take(self, timeout: float) -> tuple[str, T] | None:
        """The next item and whose it is; waits up to `timeout` seconds for one."""
        with self._came:
            if not self._came.wait_for(lambda: bool(self._queues), timeout):
                return None
            lanes: dict[bool, list[str]] = {}
            for id in self._queues:
                lanes.setdefault(id in self._known, []).append(id)
            lane = min(lanes, key=lambda lane: self._spent_in[lane])
            for idle in self._spent_in.keys() - lanes.keys():
                self._spent_in[idle] = max(self._spent_in[idle], self._spent_in[lane])
            id = min(lanes[lane], key=lambda id: self._spent[id] + self._last.get(id, self._entry))
            self._now[lane] = self._spent[id]
            return id, self._pop(id)

    def drain(self) -> list[T]:
        """All there are, of one node after another, oldest first."""
        with self._came:
            items = [item for queue in self._queues.values() for item, _ in queue]
            self._queues.clear()
            self._bytes.clear()
            return items

    def charge(self, id: str, seconds: float) -> None:
        """The last item of `id` cost so much time."""
        with self._came:
            lane = id in self._known
            self._spent[id] = self._spent.get(id, 0.0) + seconds
            self._last[id] = seconds
            self._spent_in[lane] += seconds
            if len(self._spent) > FORGET:  # who waits for nothing and is not behind is as good as new
                self._spent = {
                    id: spent
                    for id, spent in self._spent.items()
                    if id in self._queues or spent > self._now[id in self._known]
                }
                self._last = {id: self._last[id] for id in self._spent if id in self._last}

    def move(self, id: str, known: bool) -> None:
        """The items of `id` stand in this lane from now on."""
        with self._came:
            if known != (id in self._known):
                (self._known.add if known else self._known.discard)(id)
                self._spent[id] = self._now[known]

    def _lose(self, id: str) -> None:
        self._pop(id)
        self.lost += 1

    def _pop(self, id: str) -> T:
        item, size = self._queues[id].popleft()
        self._bytes[id] -= size
        if not self._queues[id]:
            del self._queues[id], self._bytes[id]
        return item


class Meter:
    """Counts messages and bytes, in all and for each of the last seconds."""

    def __init__(self) -> None:
        self.messages = self.bytes = 0
        self.last: float | None = None
        self._seconds: deque[list[int]] = deque(maxlen=WINDOW + 1)
        self._lock = threading.Lock()

    def count(self, size: int) -> None:
        with self._lock:
            self.messages += 1
            self.bytes += size
            self.last = time.time()
            second = int(time.monotonic())
            if not self._seconds or self._seconds[-1][0] != second:
                self._seconds.append([second, 0, 0])
            self._seconds[-1][1] += 1
            self._seconds[-1][2] += size

    def status(self) -> dict[str, Any]:
        with self._lock:
            since = int(time.monotonic()) - WINDOW
            recent = [entry for entry in self._seconds if entry[0] > since]
            return {
                "messages": self.messages,
                "bytes": self.bytes,
                "messages_per_second": sum(entry[1] for entry in recent) / WINDOW,
                "bytes_per_second": sum(entry[2] for entry in recent) / WINDOW,
                "last": self.last,
            }
