"""A relay that drops, delays, reorders, repeats, changes and forges messages, and serves each node another swarm.

Signing and admission stand above the transport, so a relay is whatever stands between `seal` and `Admission.admit`."""

from __future__ import annotations

import random

import pytest
from local_examiner import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.limits import AdmissionLimits
from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.tasks import Tasks
from shoal.wire.rollouts import seal

SWARM, ROUNDS, NOW = "lagoon", 24, 1.8e9
TASKS = Tasks(TasksConfig())
ADA, BOB, EVE = (Identity.generate() for _ in range(3))
Message = tuple[str, bytes]


class Half:
    """Every second text is right."""

    def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]:
        return [[float(number % 2) for number, _ in enumerate(texts)] for _, texts in items]


class Node:
    """A node that hears others by the relay alone."""

    def __init__(self) -> None:
        self.now = NOW
        limits = AdmissionLimits(max_characters=200)
        examiner = LocalExaminer(TASKS, Half())
        self.admission = Admission(SWARM, examiner, limits, num_generations=8, clock=lambda: self.now)

    def hears(self, *messages: Message) -> list[int]:
        return sorted(scored.rollout.round for scored in self.admission.admit(list(messages)))

    @property
    def offences(self) -> int:
        return sum(peer.offences for peer in self.admission.peers.by_key.values())


def sent(maker: Identity, round: int, swarm: str = SWARM, name: str = "") -> Message:
    question = TASKS.draw(1, swarm, maker.id, round)[0]
    texts = tuple(map(Completion.of, (f"{maker.name} {round}", "b")))
    rollout = Rollout(question.id, question.hash, texts, name or maker.name, round, 0)
    return maker.id, seal(rollout, maker, swarm, NOW)


ALL = [sent(ADA, round) for round in range(1, ROUNDS + 1)]


@pytest.fixture
def node() -> Node:
    return Node()


def test_what_is_dropped_is_missing_and_nothing_else(node: Node) -> None:
    kept = random.Random(0).sample(ALL, ROUNDS // 2)
    assert len(node.hears(*kept)) == ROUNDS // 2
    assert not node.admission.refused


def test_order_does_not_matter(node: Node) -> None:
    shuffled = random.Random(0).sample(ALL, ROUNDS)
    assert node.hears(*shuffled) == list(range(1, ROUNDS + 1))


def test_what_is_held_back_for_long_is_worth_nothing(node: Node) -> None:
    node.now += 890
    assert node.hears(*ALL[:4]) == [1, 2, 3, 4]
    node.now += 20
    assert node.hears(*ALL[4:]) == []
    assert node.admission.refused == {"age": ROUNDS - 4}
    assert node.offences == 0


def test_what_is_repeated_counts_once_and_nobody_is_blamed(node: Node) -> None:
    for _ in range(50):
        node.hears(*ALL)
    assert node.admission.admitted == ROUNDS
    assert node.admission.refused == {"repeated": 49 * ROUNDS}
    assert node.offences == 0
    assert node.hears(sent(ADA, ROUNDS + 1)) == [ROUNDS + 1]


def test_no_changed_bit_is_admitted(node: Node) -> None:
    maker, data = ALL[0]
    chance = random.Random(0)
    for at in range(len(data)):
        changed = bytearray(data)
        changed[at] ^= 1 << chance.randrange(8)
        assert node.hears((maker, bytes(changed))) == []
    assert node.offences == 0, "what another changed is no offence of hers"
    assert node.hears(ALL[0]) == [1]


def test_nothing_can_be_said_in_another_s_name(node: Node) -> None:
    """Under her key expression, with her name, with her rollout under his own key, and with his under hers."""
    own = sent(EVE, 1)
    named = sent(EVE, 2, name=ADA.name)
    assert node.hears((ADA.id, own[1]), named, (EVE.id, ALL[0][1])) == []
    assert set(node.admission.refused) <= {"key", "name", "name taken", "signature"}
    assert node.hears(*ALL) == list(range(1, ROUNDS + 1))
    ada = node.admission.peers.by_key[ADA.public]
    assert ada.offences == 0


def test_who_is_served_another_swarm_learns_nothing_from_it(node: Node) -> None:
    other = [sent(maker, round, "reef") for maker in (ADA, BOB) for round in range(1, 11)]
    assert node.hears(*other) == []
    assert node.admission.refused == {"swarm": 20}
    assert node.offences == 0
    assert node.hears(*ALL) == list(range(1, ROUNDS + 1))


def test_what_each_node_gets_of_one_maker_is_the_same_or_nothing() -> None:
    """A relay may show two nodes different parts; it cannot show them different things."""
    parts = [[*ALL[start::2], *ALL[:3]] for start in (0, 1)]
    one, two = ({s.rollout.round: s.rollout for s in Node().admission.admit(part)} for part in parts)
    assert one.keys() & two.keys() == {1, 2, 3}
    assert all(one[round] == two[round] for round in (1, 2, 3))
