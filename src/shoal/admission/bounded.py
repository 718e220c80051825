"""Rate limits, and collections that stay small whatever strangers send."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable, ItemsView
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Bucket:
    """A token bucket: lets through `rate` per second, and after a pause `burst` at once."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self.rate, self.burst = rate, burst
        self._tokens, self._at = burst, now

    def take(self, now: float, number: float = 1) -> bool:
        """Whether `number` more may pass at `now` (seconds). A clock that goes back gives nothing."""
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
    """A mapping of the `size` keys that were used last; it makes the values itself."""

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

    def items(self) -> ItemsView[K, V]:
        """Keys and values, the one used last at the end."""
        return self._items.items()


class RecentKeys(Generic[K]):
    """A set of the `size` keys that were added last."""

    def __init__(self, size: int) -> None:
        self.size = size
        self._keys: OrderedDict[K, None] = OrderedDict()

    def add(self, key: K) -> bool:
        """Adds `key`. Returns whether it is new."""
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
