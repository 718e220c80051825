"""The way in: whose turn it is, and what becomes of what takes long."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fakes import question, rollout
from hypothesis import given
from hypothesis import strategies as st
from test_network import until

from shoal.rollout import Rollout, Scored
from shoal.swarm.admission import Claim, SlowAnswers
from shoal.swarm.admission_limits import AdmissionLimits
from shoal.swarm.intake import RECEIVED, Intake
from shoal.swarm.peers import Peer
from shoal.swarm.queues import FairQueue

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


class Gate:
    """Admits everything; what says "slow" only with patience, and then as soon as `open` is set."""

    def __init__(self) -> None:
        self.open = threading.Event()
        self.before: list[bytes] = []
        """What a checkpoint knows."""
        self.peer = Peer(AdmissionLimits(), 0.0)

    def admit(self, messages: list[tuple[str, bytes]]) -> list[Scored]:
        return [self._scored(Rollout.decode(data)) for _, data in messages if data not in self.before]

    def attribute(self, id: str, data: bytes) -> Claim | None:
        return None if data in self.before else Claim(Rollout.decode(data), b"", self.peer)

    def examine(self, claim: Claim, patient: bool) -> tuple[Scored, float]:
        if claim.rollout.node == "slow":
            if not patient:
                raise SlowAnswers(0.1)
            self.open.wait()
        return self._scored(claim.rollout), 0.0

    def load(self, folder: Path) -> None:
        self.before = [rollout(node="ada", round=1).encode()]

    def _scored(self, one: Rollout) -> Scored:
        return Scored(one, question(1), (1.0, 0.0))


@contextmanager
def intake() -> Iterator[tuple[Intake, Gate]]:
    gate = Gate()
    one = Intake(gate, lambda id, scored: None)
    try:
        yield one, gate
    finally:
        gate.open.set()
        one.close()


def test_quick_ones_do_not_wait_for_slow_ones() -> None:
    with intake() as (one, gate):
        for round in range(10):
            one.put("slow", rollout(node="slow", round=round).encode())
            one.put("ada", rollout(node="ada", round=round).encode())
        got: list[Scored] = []
        until(lambda: got.extend(one.take()) or len(got) == 10)
        assert {scored.rollout.node for scored in got} == {"ada"}
        gate.open.set()
        until(lambda: got.extend(one.take()) or len(got) == 20)


def test_what_waits_for_the_trainer_is_shared_by_makers() -> None:
    """So a node that sends much while an update takes long does not displace what others sent."""
    with intake() as (one, _):
        one.put("ada", rollout(node="ada", round=1).encode())
        until(lambda: one._received)
        for round in range(2 * RECEIVED[0]):
            one.put("flood", rollout(node="flood", round=round).encode())
            until(lambda: not len(one._inbox))
        until(lambda: one.lost >= RECEIVED[0])
        counts = Counter(scored.rollout.node for scored in one.take())
        assert counts == {"ada": 1, "flood": RECEIVED[0]}


def test_a_checkpoint_knows_what_came_before_it_was_read(tmp_path: Path) -> None:
    with intake() as (one, _):
        for round in (1, 2):
            one.put("ada", rollout(node="ada", round=round).encode())
        until(lambda: len(one._received) == 2)
        one.load(tmp_path)
        assert [scored.rollout.round for scored in one.take()] == [2]
