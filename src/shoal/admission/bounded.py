"""Rate limits, collections and queues that stay small whatever strangers send.

The queues stand between threads that never wait for each other: they lose the oldest items, and count them.
"""

import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, ItemsView, Sequence
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
T = TypeVar("T")

REMEMBERED = 4096  # nodes whose costs are remembered


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


class RecentKeys(Recent[K, None]):
    """A set of the `size` keys that were added last."""

    def __init__(self, size: int) -> None:
        super().__init__(size, lambda: None)

    def add(self, key: K) -> bool:
        """Adds `key`. Returns whether it is new."""
        new = key not in self
        self[key]
        return new

    def discard(self, key: K) -> None:
        self._items.pop(key, None)


class Newest(Generic[T]):
    """A queue of the newest `size` items."""

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
        """All items, the oldest first. Waits up to `timeout` seconds for the first one."""
        with self._came:
            if timeout:
                self._came.wait_for(lambda: bool(self._items), timeout)
            items = list(self._items)
            self._items.clear()
            return items


class FairQueue(Generic[T]):
    """A queue that shares processor time fairly among nodes (fair queueing: Demers et al., 1989).

    The next item is of the node with the least time so far, plus the time of its last item as a guess for the next. So
    a node that sends much, or whose items take long, delays only itself.

    Known nodes and newcomers have a lane each, and the lanes share time in the same way: however many newcomers there
    are, they get at most half of the time while known nodes wait.

    At most `each` items of one node wait, and `size` bytes in all. The queue loses the oldest items of the node that
    has the most there."""

    def __init__(self, each: int, size: int, entry: float = 0.0) -> None:
        """`entry`: seconds that the first item of a node counts for, so that nodes known to be quick go first."""
        self.lost = 0
        self._entry = entry
        self._each = each
        self._size = size
        self._queues: dict[str, deque[tuple[T, int]]] = {}
        self._bytes: Counter[str] = Counter()
        self._known: set[str] = set()
        self._spent: dict[str, float] = {}
        """Seconds that each node has cost, including those that others cost while it was idle."""
        self._last: dict[str, float] = {}
        """Seconds that the last item of each node cost."""
        self._lane_spent = {False: 0.0, True: 0.0}
        """Like `_spent`, for the lanes of newcomers (False) and of known nodes (True)."""
        self._now = {False: 0.0, True: 0.0}
        """For each lane: `_spent` of the node whose turn came last."""
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
        """The next item and the id of its node, or None. Waits up to `timeout` seconds for one."""
        with self._came:
            if not self._came.wait_for(lambda: bool(self._queues), timeout):
                return None
            lanes: dict[bool, list[str]] = {}
            for id in self._queues:
                lanes.setdefault(id in self._known, []).append(id)
            lane = min(lanes, key=lambda lane: self._lane_spent[lane])
            for idle in self._lane_spent.keys() - lanes.keys():
                self._lane_spent[idle] = max(self._lane_spent[idle], self._lane_spent[lane])
            id = min(lanes[lane], key=lambda id: self._spent[id] + self._last.get(id, self._entry))
            self._now[lane] = self._spent[id]
            return id, self._pop(id)

    def drain(self) -> list[T]:
        """All items, node by node, the oldest first."""
        with self._came:
            items = [item for queue in self._queues.values() for item, _ in queue]
            for id in self._queues:
                self._spent.pop(id, None)
            self._queues.clear()
            self._bytes.clear()
            return items

    def charge(self, id: str, seconds: float) -> None:
        """The last item of node `id` cost so much time."""
        with self._came:
            lane = id in self._known
            self._spent[id] = self._spent.get(id, 0.0) + seconds
            self._last[id] = seconds
            self._lane_spent[lane] += seconds
            if len(self._spent) > REMEMBERED:  # an idle node that is not behind is as good as new
                self._spent = {
                    id: spent
                    for id, spent in self._spent.items()
                    if id in self._queues or spent > self._now[id in self._known]
                }
                self._last = {id: self._last[id] for id in self._spent if id in self._last}

    def move(self, id: str, known: bool) -> None:
        """Moves node `id` to the lane of known nodes, or of newcomers."""
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
