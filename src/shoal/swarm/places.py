"""Who is kept of all that speak, where keys cost nothing and nobody's word counts for more than another's.

    places = Places(make=Figures)
    place = places.hear(notice, now)       # None: too fast, or said before
    places.all()                           # those heard for longest first

Time is what a stranger cannot make up. A key that was heard in `PROVEN` spans of time has a place of its own for as
long as it keeps speaking; until then it shares a lane with all other fresh keys, where the one that was heard last
displaces the one that was silent for longest. Of keys without a place only the time for which they spoke is
remembered, so that a node gets its place however many fresh keys come between two of its notices.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from shoal.swarm.limits import Bucket
from shoal.swarm.notices import Notice

V = TypeVar("V")

KNOWN = 1000
"""Places of keys that were heard for a while."""
FRESH = 200
"""Places of the others; those that are free of the known ones too."""
FAINT: Final = 16_384
"""Keys without a place that are remembered."""
SPAN = 10.0
"""Seconds: however often a key speaks within them, it was heard once."""
PROVEN: Final = 3
"""Spans in which a known key was heard."""
SILENT: Final = 3600.0
"""Seconds of silence after which a known key may lose its place to another one."""
RATE, BURST = 2.0, 8.0
"""Notices in a second of one key, and at once."""


class Place(Generic[V]):
    """One key, and what is kept of it."""

    def __init__(self, now: float) -> None:
        self.kept: V | None = None
        """None for a key without a place."""
        self.first = self.last = now
        self.spans = 0
        self._span = -1.0
        self._bucket = Bucket(RATE, BURST, now)
        self._said = (-1.0, -1)

    def hear(self, notice: Notice, now: float) -> bool:
        """Whether this counts. What was said before costs its key nothing, since anybody can send it again."""
        time, round = self._said
        if (notice.time <= time and notice.round <= round) or not self._bucket.take(now):
            return False
        self._said = (notice.time, notice.round)
        self.last = now
        span = math.floor(now / SPAN)
        if span != self._span:
            self._span = span
            self.spans += 1
        return True


class Places(Generic[V]):
    """The book. Not thread-safe."""

    def __init__(self, make: Callable[[], V]) -> None:
        self._make = make
        self._known: dict[str, Place[V]] = {}
        self._fresh: OrderedDict[str, Place[V]] = OrderedDict()
        self._faint: OrderedDict[str, Place[V]] = OrderedDict()
        self._cleared = -math.inf

    def __len__(self) -> int:
        return len(self._known) + len(self._fresh)

    @property
    def more(self) -> int:
        """Keys that spoke and have no place, as far as they are remembered."""
        return len(self._faint)

    def hear(self, notice: Notice, now: float) -> V | None:
        """What is kept of the notice's key, or None for a notice that does not count. `now`: seconds."""
        id = notice.id
        place = self._known.get(id)
        if place is not None:
            return place.kept if place.hear(notice, now) else None
        place = self._fresh.get(id) or self._faint.get(id) or Place(now)
        if not place.hear(notice, now):
            return None
        self._fresh.pop(id, None)
        self._faint.pop(id, None)
        if place.kept is None:
            place.kept = self._make()
        if place.spans >= PROVEN and self._has_room(now):
            self._known[id] = place
        else:
            self._fresh[id] = place
        self._forget()
        return place.kept

    def all(self) -> list[V]:
        """What is kept of each key with a place: known ones, then fresh ones; those heard for longest first."""
        fresh = sorted(self._fresh.values(), key=lambda place: place.first)
        return [place.kept for place in (*self._known.values(), *fresh) if place.kept is not None]

    def _has_room(self, now: float) -> bool:
        if len(self._known) >= KNOWN and now - self._cleared >= SPAN:
            self._cleared = now
            for id, place in list(self._known.items()):
                if now - place.last > SILENT:
                    del self._known[id]
        return len(self._known) < KNOWN

    def _forget(self) -> None:
        while len(self._known) + len(self._fresh) > KNOWN + FRESH:
            id, place = self._fresh.popitem(last=False)
            place.kept = None
            self._faint[id] = place
        while len(self._faint) > FAINT:
            self._faint.popitem(last=False)
