"""A registry of the nodes that send notices. It stays small, though new keys cost nothing and anybody can make many.

    registry = Registry(make=Figures)
    figures = registry.hear(notice, now)       # None: sent too fast, or heard before
    registry.all()                             # figures of all registered nodes, the oldest nodes first

Time is what a stranger cannot make up. A key that was heard in `PROVEN` spans of time is known, and keeps its place for
as long as it goes on sending. Until then it competes with all other fresh keys for a few places: the key that was heard
last displaces the one that was silent for longest. For a displaced key, the registry still remembers how long it has
been sending. So a node gets a known place however many fresh keys come between two of its notices.
"""

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Generic, TypeVar

from shoal.admission.bounded import Bucket
from shoal.wire.notices import Notice

V = TypeVar("V")

KNOWN = 1000  # places of keys that were heard for a while
FRESH = 200  # places of other keys, in addition to those that known keys leave free
DISPLACED = 16_384  # keys without a place that are remembered
SPAN = 10.0  # seconds; however often a key sends within a span, it was heard once
PROVEN = 3  # spans after which a key is known
SILENT = 3600.0  # seconds of silence after which a known key may lose its place
RATE, BURST = 2.0, 8.0  # notices per second from one key, and at once


class Entry(Generic[V]):
    """One key, and the value that is kept for it."""

    def __init__(self, now: float) -> None:
        self.value: V | None = None
        """None for a key without a place."""
        self.first = self.last = now
        self.spans = 0
        self._span = -1.0
        self._bucket = Bucket(RATE, BURST, now)
        self._newest = -1.0

    def hear(self, notice: Notice, now: float) -> bool:
        """Whether this notice counts. One that is not newer than the last costs its key nothing, since anybody can send
        it again."""
        if notice.time <= self._newest or not self._bucket.take(now):
            return False
        self._newest = notice.time
        self.last = now
        span = math.floor(now / SPAN)
        if span != self._span:
            self._span = span
            self.spans += 1
        return True


class Registry(Generic[V]):
    """Keeps one value for each registered key. Not thread-safe."""

    def __init__(self, make: Callable[[], V]) -> None:
        """`make`: makes the value of a new key."""
        self._make = make
        self._known: dict[str, Entry[V]] = {}
        self._fresh: OrderedDict[str, Entry[V]] = OrderedDict()
        self._displaced: OrderedDict[str, Entry[V]] = OrderedDict()
        self._cleared = -math.inf

    def __len__(self) -> int:
        return len(self._known) + len(self._fresh)

    @property
    def more(self) -> int:
        """Remembered keys that have no place."""
        return len(self._displaced)

    def hear(self, notice: Notice, now: float) -> V | None:
        """The value of the notice's key, or None if the notice does not count. `now`: seconds."""
        id = notice.id
        entry = self._known.get(id)
        if entry is not None:
            return entry.value if entry.hear(notice, now) else None
        entry = self._fresh.get(id) or self._displaced.get(id) or Entry(now)
        if not entry.hear(notice, now):
            return None
        self._fresh.pop(id, None)
        self._displaced.pop(id, None)
        if entry.value is None:
            entry.value = self._make()
        if entry.spans >= PROVEN and self._has_room(now):
            self._known[id] = entry
        else:
            self._fresh[id] = entry
        self._displace()
        return entry.value

    def all(self) -> list[V]:
        """The values of all keys with a place: known keys, then fresh ones, the oldest first."""
        fresh = sorted(self._fresh.values(), key=lambda entry: entry.first)
        return [entry.value for entry in (*self._known.values(), *fresh) if entry.value is not None]

    def _has_room(self, now: float) -> bool:
        if len(self._known) >= KNOWN and now - self._cleared >= SPAN:
            self._cleared = now
            self._known = {id: entry for id, entry in self._known.items() if now - entry.last <= SILENT}
        return len(self._known) < KNOWN

    def _displace(self) -> None:
        while len(self) > KNOWN + FRESH:
            id, entry = self._fresh.popitem(last=False)
            entry.value = None
            self._displaced[id] = entry
        while len(self._displaced) > DISPLACED:
            self._displaced.popitem(last=False)
