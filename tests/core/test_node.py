"""The round: what a node shares, what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from fakes import RIGHT, WRONG, Exact, Parrot, Student, join, make_node, question, rollout

from shoal.config.sections import SelectionConfig
from shoal.node import Node
from shoal.rollout import Completion, Question, Rollout
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection
from shoal.transports.memory import MemorySwarm


def student(node: Node) -> Student:
    assert isinstance(node.learner, Student)
    return node.learner


def test_a_round() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), make_node("bob", swarm)
    for round in (1, 2):
        ada.act()
        bob.act()
        result = ada.learn()
        assert ada.round == round
        assert result.local == ada.local
        assert all(s.rewards == (1.0, 0.0, 1.0, 0.0) for s in result.local + result.from_peers)
        assert [s.rollout.node for s in result.local] == ["ada", "ada"]
        assert [s.rollout.node for s in result.from_peers] == ["bob", "bob"]
        assert student(ada).lessons[-1] == result.batch == result.local + result.from_peers
        assert all(s.from_peer for s in result.from_peers)
        assert not any(s.from_peer for s in result.local)
        assert result.update.metrics == {"loss": 0.5}
        assert result.update.gradient_shares == {"ada": 0.5, "bob": 0.5}
        assert set(ada.seconds) == {"generate", "score", "learn"}
        bob.learn()
    assert len(ada.scorer.tasks.draw(2, 1)) == 2
    assert ada.scorer.refused == 0


def test_it_shares_text_alone() -> None:
    swarm = MemorySwarm()
    ada, listener = make_node("ada", swarm), join(swarm)
    ada.act()
    shared = listener.receive()
    assert [(r.node, r.round, len(r.completions)) for r in shared] == [("ada", 1, 4)] * 2
    assert [[c.text for c in r.completions] for r in shared] == [[RIGHT, WRONG, RIGHT, WRONG]] * 2
    assert all(c.token_ids is None for r in shared for c in r.completions)
    assert all(c.token_ids is not None for s in ada.local for c in s.rollout.completions)
    assert all(ada.scorer.tasks.question(r.question).hash == r.question_hash for r in shared)
    assert not any(ada.scorer.tasks.is_held_out(ada.scorer.tasks.question(r.question)) for r in shared)


def without_completions(sent: Rollout) -> Rollout:
    return msgspec.structs.replace(sent, completions=())


@pytest.mark.parametrize(
    "bad",
    [
        msgspec.structs.replace(rollout(), question_hash=question(2).hash),
        msgspec.structs.replace(rollout(), question_hash=""),
        rollout(question(1, task="other")),
        rollout(question(1, version="2")),
        msgspec.structs.replace(rollout(), question=msgspec.structs.replace(question(1).id, config="0" * 32)),
        rollout(question(5)),
        without_completions(rollout()),
    ],
    ids=["another question", "no hash", "unknown task", "another version", "other parameters", "held out", "empty"],
)
def test_what_is_not_a_training_question_is_dropped_and_counted(bad: Rollout) -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), join(swarm, "bob")
    bob.share([bad, rollout(question(6)), bad])
    ada.act()
    result = ada.learn()
    assert ada.scorer.refused == 2
    assert [s.question.id.index for s in result.from_peers] == [6]
    verifier = ada.scorer.verifier
    assert isinstance(verifier, Exact)
    assert [id.index for id, _ in verifier.asked][2:] == [6]
    assert len(ada.pool) == 0


def test_a_stranger_s_prompt_and_rewards_are_not_taken() -> None:
    """The question is the node's own, system prompt included; what is right is its own verifier's to say."""
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, right="42")
    join(swarm, "bob").share([rollout(question(6), answers=["42", RIGHT])])
    ada.act()
    result = ada.learn()
    assert result.from_peers[0].question == question(6)
    assert result.from_peers[0].rewards == (1.0, 0.0)
    assert [s.rewards for s in result.local] == [(0.0,) * 4] * 2


def test_an_empty_pool_stops_nobody() -> None:
    ada = make_node("ada")
    for round in (1, 2, 3):
        ada.act()
        result = ada.learn()
        assert result.from_peers == []
        assert len(result.local) == 2
        assert ada.round == round
    assert [len(taught) for taught in student(ada).lessons] == [2, 2, 2]


def test_j_zero_takes_nothing_and_shares_all_the_same() -> None:
    swarm = MemorySwarm()
    ada, listener, bob = make_node("ada", swarm, J=0), join(swarm), join(swarm, "bob")
    bob.share([rollout(question(6))])
    ada.act()
    assert ada.learn().from_peers == []
    assert len(listener.receive()) == 2 + 1


def test_i_zero_learns_from_others_alone() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, I=0)
    join(swarm, "bob").share([rollout(question(6))])
    ada.act()
    result = ada.learn()
    assert result.local == ada.local == []
    assert [s.question.id.index for s in result.from_peers] == [6]


def test_rollouts_that_teach_nothing_are_left_in_the_pool_until_they_are_old() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, pool=Pool(8, max_age=1))
    join(swarm, "bob").share([rollout(question(6), answers=[WRONG, WRONG])])
    sizes = []
    for _ in range(3):
        ada.act()
        assert ada.learn().from_peers == []
        sizes.append(len(ada.pool))
    assert sizes == [1, 1, 0]


def test_nothing_foreign_is_learned_twice() -> None:
    swarm = MemorySwarm()
    names = ["ada", "bob", "eve"]
    nodes = [make_node(name, swarm, J=3, pool=Pool(32, 9)) for name in names]
    for _ in range(6):
        for node in nodes:
            node.act()
        for node in nodes:
            node.learn()
    for node in nodes:
        foreign = {key: times for key, times in student(node).learned.items() if not key.startswith(node.name)}
        assert len(foreign) == 6 * 3
        assert set(foreign.values()) == {1}


def test_own_rollouts_do_not_come_back() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), make_node("bob", swarm)
    for _ in range(3):
        for node in (ada, bob):
            node.act()
        assert all(s.rollout.node == "bob" for s in ada.learn().from_peers)
        bob.learn()


def test_each_node_round_and_purpose_has_seeds_of_its_own() -> None:
    def seeds(name: str, seed: int) -> list[int]:
        node = make_node(name, seed=seed)
        for _ in range(3):
            node.act()
            node.learn()
        policy = node.policy
        assert isinstance(policy, Parrot)
        return policy.seeds + student(node).seeds

    assert seeds("ada", 1) == seeds("ada", 1)
    assert len({*seeds("ada", 1), *seeds("bob", 1), *seeds("ada", 2)}) == 3 * 6


def test_a_loaded_node_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def swarm_of_two() -> tuple[MemorySwarm, Node, Node]:
        swarm = MemorySwarm()
        return swarm, make_node("ada", swarm, J=1), make_node("bob", swarm)

    def play(ada: Node, bob: Node) -> None:
        bob.act()
        ada.act()
        ada.learn()
        bob.learn()

    swarm, ada, bob = swarm_of_two()
    join(swarm, "eve").share([rollout(question(5))])  # held out
    play(ada, bob)
    play(ada, bob)
    for node in (ada, bob):
        node.save(tmp_path / node.name)
    play(ada, bob)

    _, again, other = swarm_of_two()
    for node in (again, other):
        node.load(tmp_path / node.name)
    assert (again.round, again.scorer.refused) == (2, 1)
    assert len(again.pool) == 2
    play(again, other)
    assert again.local == ada.local
    assert student(again).lessons[-1] == student(ada).lessons[-1]
    assert student(again).learned == student(ada).learned
    assert again.pool.candidates() == ada.pool.candidates()
    assert (again.round, again.scorer.refused) == (ada.round, ada.scorer.refused)


def test_a_rollout_with_one_completion_is_compared_with_what_the_node_itself_does() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm)
    one = msgspec.structs.replace(rollout(question(6)), completions=(Completion.of(RIGHT),))
    join(swarm, "bob").share([one])
    ada.act()
    [taken] = ada.learn().from_peers
    assert taken.rollout == one
    assert (taken.baseline, taken.from_peer, taken.has_signal) == (0.5, True, True)
    assert ada.scorer.refused == 0


class Gifted(Parrot):
    """Right about every third question alone, and then half of the time."""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        groups = super().generate(questions, num_generations, seed)
        wrong = tuple(Completion.of(WRONG) for _ in range(num_generations))
        return [group if slot % 3 == 2 else wrong for slot, group in enumerate(groups)]


@pytest.mark.parametrize(
    ("questions", "learned"), [(7, [0, 2, 5]), (None, [0, 1, 2]), (3, [0, 1, 2]), (2, [0, 1]), (0, [])]
)
def test_of_more_own_ones_than_i_the_live_are_learned_from_first(questions: int | None, learned: list[int]) -> None:
    swarm = MemorySwarm()
    ada, listener = make_node("ada", swarm, policy=Gifted(), I=3, questions_per_round=questions), join(swarm)
    ada.act()
    result = ada.learn()
    asked = 3 if questions is None else questions
    assert ada.asked == len(result.local) == len(listener.receive()) == asked
    assert [s.rollout.slot for s in result.batch] == learned
    assert student(ada).lessons == [result.batch]


def test_more_questions_are_the_same_ones_and_more() -> None:
    few, many = make_node(), make_node(questions_per_round=5)
    for node in (few, many):
        node.act()
    assert many.local[:2] == few.local


def test_a_node_that_chooses_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def two() -> list[Node]:
        swarm = MemorySwarm()
        ada = make_node("ada", swarm, selection=FairSelection(SelectionConfig()), J=3, pool=Pool(32, 9))
        return [ada, make_node("bob", swarm, policy=Gifted(), I=6)]

    def play(nodes: list[Node], rounds: int) -> None:
        for _ in range(rounds):
            for node in nodes:
                node.act()
            for node in nodes:
                node.learn()

    nodes, again = two(), two()
    play(nodes, 9)
    for node, other in zip(nodes, again, strict=True):
        node.save(tmp_path / node.name)
        other.load(tmp_path / node.name)
    for both in (nodes, again):
        play(both, 5)
    for node, other in zip(nodes, again, strict=True):
        assert other.sent == node.sent
        assert student(other).lessons == student(node).lessons[9:]
        assert student(other).learned == student(node).learned
        node.save(tmp_path / f"{node.name} then")
        other.save(tmp_path / f"{node.name} again")
        for kept in ("node.json", "selection.msgpack"):
            then, now = ((tmp_path / f"{node.name} {which}" / kept).read_bytes() for which in ("then", "again"))
            assert then == now
    assert max(times for key, times in student(nodes[0]).learned.items() if key.startswith("bob")) == 1
