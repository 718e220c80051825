"""Queues that never wait: what they lose, and whose turn it is."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from shoal.admission.bounded import FairQueue, Newest


def test_the_newest_stay() -> None:
    queue: Newest[int] = Newest(3)
    queue.put([1, 2])
    queue.put([3, 4, 5])
    assert queue.take() == [3, 4, 5]
    assert queue.lost == 2
    assert queue.take() == []
    queue.put(range(10))
    assert queue.take() == [7, 8, 9]
    assert queue.lost == 9


COSTS = st.lists(st.tuples(st.sampled_from("abcd"), st.floats(1e-4, 1.0)), min_size=1, max_size=200)


def taken(queue: FairQueue[bytes], cost: dict[str, float], most: int = 10_000) -> list[str]:
    """Whose turn it was, one after another, with what each of their items costs."""
    order = []
    while len(order) < most and (one := queue.take(0)):
        order.append(one[0])
        queue.charge(one[0], cost[one[0]])
    return order


def test_what_takes_long_holds_up_its_maker_alone() -> None:
    queue: FairQueue[bytes] = FairQueue(100, 1000)
    for number in range(20):
        for id in ("quick", "slow"):
            queue.put(id, b"%d" % number, 1)
    order = taken(queue, {"quick": 0.001, "slow": 0.1})
    assert order.index("quick") <= 1
    assert order[:22].count("slow") <= 2
    assert Counter(order) == {"quick": 20, "slow": 20}


def test_who_was_idle_has_saved_nothing_up() -> None:
    queue: FairQueue[bytes] = FairQueue(100, 1000)
    for _ in range(50):
        queue.put("busy", b"", 1)
    assert taken(queue, {"busy": 1.0}, 40) == ["busy"] * 40
    for _ in range(10):
        queue.put("late", b"", 1)
    order = taken(queue, {"busy": 1.0, "late": 1.0})
    assert order[:4].count("busy") >= 1


def test_newcomers_get_half_of_the_time_however_many_they_are() -> None:
    queue: FairQueue[bytes] = FairQueue(100, 10_000)
    queue.move("known", known=True)
    for id in ["known", *(f"new {n}" for n in range(50))]:
        for _ in range(20):
            queue.put(id, b"", 1)
    order = taken(queue, dict.fromkeys(["known", *(f"new {n}" for n in range(50))], 0.1), 38)
    assert order.count("known") >= 18


def test_one_who_floods_displaces_nobody_else() -> None:
    queue: FairQueue[bytes] = FairQueue(each=4, size=100)
    queue.put("ada", b"ada", 3)
    for number in range(50):
        queue.put("flood", b"%d" % number, 2)
    for _ in range(4):
        queue.put("large", b"x" * 40, 40)
    items = queue.drain()
    assert b"ada" in items
    assert [item for item in items if item.isdigit()] == [b"46", b"47", b"48", b"49"]
    assert queue.lost == 46 + 2
    assert queue.take(0) is None


@given(COSTS)
def test_everything_that_is_not_displaced_gets_its_turn_in_order(puts: list[tuple[str, float]]) -> None:
    queue: FairQueue[tuple[int, float]] = FairQueue(1000, 10**6)
    for number, (id, cost) in enumerate(puts):
        queue.put(id, (number, cost), 1)
    got: list[tuple[str, int]] = []
    while one := queue.take(0):
        id, (number, cost) = one
        got.append((id, number))
        queue.charge(id, cost)
    assert len(got) == len(puts)
    for id in "abcd":
        assert [n for i, n in got if i == id] == [n for n, (i, _) in enumerate(puts) if i == id]


def test_what_is_drained_leaves_nothing_behind() -> None:
    queue: FairQueue[int] = FairQueue(2, 100)
    for number in range(50):
        queue.put(f"node {number}", number, 1)
        assert queue.drain() == [number]
    assert not queue._spent
