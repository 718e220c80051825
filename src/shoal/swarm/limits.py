"""Rates, and what has been seen: bounded, whatever strangers send."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bucket:
    """A token bucket: at most `rate` a second, and `burst` at once after a pause."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float, number: float = 1) -> bool:
        """Whether `number` more may pass at `now` (seconds); a clock that goes back gives nothing."""
        self._tokens = min(self.burst, self._tokens + self.rate * max(0.0, now - self._at))
        self._at = now
        if self._tokens < number:
            return False
        self._tokens -= number
        return True

    def wait(self, now: float) -> float:
        """Seconds until one may pass."""
        missing = 1.0 - self._tokens - self.rate * max(0.0, now - self._at)
        return max(0.0, missing / self.rate)


class Recent(Generic[K, V]):
    """A mapping that forgets what was not used for longest, so that strangers cannot fill memory."""

    def __init__(self, size: int, make: Callable[[], V]) -> None:
        self.size, self._make = size, make
        self._items: OrderedDict[K, V] = OrderedDict()

    def __getitem__(self, key: K) -> V:
        if key not in self._items:
            self._items[key] = self._make()
            if len(self._items) > self.size:
                self._items.popitem(last=False)
        self._items.move_to_end(key)
        return self._items[key]

    def __contains__(self, key: K) -> bool:
        return key in self._items

    def __len__(self) -> int:
        return len(self._items)


class RecentKeys(Generic[K]):
    """The `size` keys that were added last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._keys: OrderedDict[K, None] = OrderedDict()

    def add(self, key: K) -> bool:
        """Adds `key`. Returns whether it was not there."""
        new = key not in self._keys
        self._keys[key] = None
        self._keys.move_to_end(key)
        if len(self._keys) > self.size:
            self._keys.popitem(last=False)
        return new

    def discard(self, key: K) -> None:
        self._keys.pop(key, None)

    def __contains__(self, key: K) -> bool:
        return key in self._keys


class Seen:
    """Which (round, slot) of one key have come, for its newest `size` rounds. Older rounds count as seen."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.floor = -1
        """Rounds up to this one count as seen."""
        self.rounds: dict[int, int] = {}
        """The slots of each later round, as the bits of a number."""

    def has(self, round: int, slot: int) -> bool:
        return round <= self.floor or bool(self.rounds.get(round, 0) >> slot & 1)

    def add(self, round: int, slot: int) -> None:
        self.rounds[round] = self.rounds.get(round, 0) | 1 << slot
        if round - self.size > self.floor:
            self.floor = round - self.size
            self.rounds = {r: slots for r, slots in self.rounds.items() if r > self.floor}
