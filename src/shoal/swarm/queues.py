"""Queues between threads that never wait for each other: bounded, they lose the oldest, and count what they lost."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Sequence
from typing import Any, Generic, TypeVar

T = TypeVar("T")

BATCH = 64
"""Messages that are admitted at a time, at most."""
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


class Inbox:
    """Messages that wait for admission: at most `each` of one neighbour and `size` bytes in all. The oldest are lost,
    of whom has most there, so that a neighbour that floods displaces nobody but itself."""

    def __init__(self, each: int = 128, size: int = 32 << 20) -> None:
        self.lost = 0
        self._each = each
        self._size = size
        self._queues: dict[str, deque[tuple[str, bytes]]] = {}
        self._bytes: Counter[str] = Counter()
        self._came = threading.Condition()

    def put(self, peer: str, link: str, data: bytes) -> None:
        with self._came:
            queue = self._queues.setdefault(peer, deque())
            queue.append((link, data))
            self._bytes[peer] += len(data)
            if len(queue) > self._each:
                self._lose(peer)
            while self._bytes.total() > self._size:
                self._lose(max(self._bytes, key=lambda peer: self._bytes[peer]))
            self._came.notify()

    def take(self, timeout: float) -> list[tuple[str, bytes]]:
        """Up to `BATCH` messages, of each neighbour in turn, oldest first; waits up to `timeout` seconds for one."""
        batch: list[tuple[str, bytes]] = []
        with self._came:
            self._came.wait_for(lambda: bool(self._queues), timeout)
            while self._queues and len(batch) < BATCH:
                for peer in list(self._queues):
                    batch.append(self._pop(peer))
        return batch

    def _lose(self, peer: str) -> None:
        self._pop(peer)
        self.lost += 1

    def _pop(self, peer: str) -> tuple[str, bytes]:
        message = self._queues[peer].popleft()
        self._bytes[peer] -= len(message[1])
        if not self._queues[peer]:
            del self._queues[peer], self._bytes[peer]
        return message


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
