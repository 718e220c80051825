"""The round: what a node shares, what it takes, and what it refuses."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from fakes import RIGHT, WRONG, Exact, Parrot, Student, join, make_node, question, rollout

from shoal.config.selection import SamplingConfig
from shoal.node import Node
from shoal.rollout import Completion, Question, Rollout
from shoal.selection.pool import Pool
from shoal.selection.samplers import SelectiveSampler
from shoal.selection.sending import Sharing
from shoal.swarm.memory import MemorySwarm


def student(node: Node) -> Student:
    assert isinstance(node.learner, Student)
    return node.learner


def test_a_round() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), make_node("bob", swarm)
    for round in (1, 2):
        ada.act()
        bob.act()
        lesson = ada.learn()
        assert ada.round == round
        assert [s.rollout for s in lesson.own] == ada.tried
        assert all(s.rewards == (1.0, 0.0, 1.0, 0.0) for s in lesson.own + lesson.foreign)
        assert [s.rollout.node for s in lesson.own] == ["ada", "ada"]
        assert [s.rollout.node for s in lesson.foreign] == ["bob", "bob"]
        assert student(ada).lessons[-1] == lesson.learned + lesson.foreign
        assert lesson.learned == lesson.own
        assert all(s.foreign for s in lesson.foreign)
        assert not any(s.foreign for s in lesson.own)
        assert lesson.update.metrics == {"loss": 0.5, "learner/steps": 1.0}
        assert set(ada.seconds) == {"generate", "score", "learn"}
        bob.learn()
    assert len(ada.scorer.tasks.draw(2, 1)) == 2
    assert ada.swarm.refused == 0


def test_it_shares_text_alone() -> None:
    swarm = MemorySwarm()
    ada, listener = make_node("ada", swarm), join(swarm)
    ada.act()
    shared = [scored.rollout for scored in listener.receive()]
    assert [(r.node, r.round, len(r.completions)) for r in shared] == [("ada", 1, 4)] * 2
    assert [[c.text for c in r.completions] for r in shared] == [[RIGHT, WRONG, RIGHT, WRONG]] * 2
    assert all(c.token_ids is None for r in shared for c in r.completions)
    assert all(c.token_ids is not None for r in ada.tried for c in r.completions)
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
    lesson = ada.learn()
    assert ada.swarm.refused == 2
    assert [s.question.id.index for s in lesson.foreign] == [6]
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
    lesson = ada.learn()
    assert lesson.foreign[0].question == question(6)
    assert lesson.foreign[0].rewards == (1.0, 0.0)
    assert [s.rewards for s in lesson.own] == [(0.0,) * 4] * 2


def test_an_empty_pool_stops_nobody() -> None:
    ada = make_node("ada")
    for round in (1, 2, 3):
        ada.act()
        lesson = ada.learn()
        assert lesson.foreign == []
        assert len(lesson.own) == 2
        assert ada.round == round
    assert [len(taught) for taught in student(ada).lessons] == [2, 2, 2]


def test_others_live_rollouts_take_the_places_of_own_dead_ones() -> None:
    """As many as the pool has beyond J, and none where others' are not wanted at all."""
    for right, external, offered, expected in [
        ("42", 1, 5, (0, 3)),  # both own ones are dead
        ("42", 1, 2, (1, 2)),  # one of them stays
        ("42", 1, 1, (2, 1)),
        ("42", 1, 0, (2, 0)),
        ("42", 0, 5, (2, 0)),
        (RIGHT, 1, 5, (2, 1)),  # both are live
    ]:
        swarm = MemorySwarm()
        ada, bob = make_node("ada", swarm, right, external=external, fill=True), join(swarm, "bob")
        bob.share([rollout(question(n), answers=[right, WRONG]) for n in (6, 7, 8, 9, 11)[:offered]])
        ada.act()
        lesson = ada.learn()
        assert (len(lesson.learned), len(lesson.foreign)) == expected


def test_j_zero_takes_nothing_and_shares_all_the_same() -> None:
    swarm = MemorySwarm()
    ada, listener, bob = make_node("ada", swarm, external=0), join(swarm), join(swarm, "bob")
    bob.share([rollout(question(6))])
    ada.act()
    assert ada.learn().foreign == []
    assert len(listener.receive()) == 2 + 1


def test_i_zero_learns_from_others_alone() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, local=0)
    join(swarm, "bob").share([rollout(question(6))])
    ada.act()
    lesson = ada.learn()
    assert lesson.own == ada.tried == []
    assert [s.question.id.index for s in lesson.foreign] == [6]


def test_rollouts_that_teach_nothing_are_left_in_the_pool_until_they_are_old() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, pool=Pool(8, max_age=1))
    join(swarm, "bob").share([rollout(question(6), answers=[WRONG, WRONG])])
    sizes = []
    for _ in range(3):
        ada.act()
        assert ada.learn().foreign == []
        sizes.append(len(ada.pool))
    assert sizes == [1, 1, 0]


def test_nothing_foreign_is_learned_twice() -> None:
    swarm = MemorySwarm()
    names = ["ada", "bob", "eve"]
    nodes = [make_node(name, swarm, external=3, pool=Pool(32, 9)) for name in names]
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
        assert all(s.rollout.node == "bob" for s in ada.learn().foreign)
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
        return swarm, make_node("ada", swarm, external=1), make_node("bob", swarm)

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
    assert (again.round, again.swarm.refused) == (2, 1)
    assert len(again.pool) == 2
    play(again, other)
    assert again.tried == ada.tried
    assert student(again).lessons[-1] == student(ada).lessons[-1]
    assert student(again).learned == student(ada).learned
    assert again.pool.candidates() == ada.pool.candidates()
    assert (again.round, again.swarm.refused) == (ada.round, ada.swarm.refused)


def test_a_rollout_with_one_completion_is_compared_with_what_the_node_itself_does() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm)
    one = msgspec.structs.replace(rollout(question(6)), completions=(Completion.of(RIGHT),))
    join(swarm, "bob").share([one])
    ada.act()
    [taken] = ada.learn().foreign
    assert taken.rollout == one
    assert (taken.baseline, taken.foreign, taken.instructive) == (0.5, True, True)
    assert ada.swarm.refused == 0


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
    ada, listener = make_node("ada", swarm, policy=Gifted(), local=3, questions=questions), join(swarm)
    ada.act()
    lesson = ada.learn()
    asked = 3 if questions is None else questions
    assert ada.asked == len(lesson.own) == len(listener.receive()) == asked
    assert [s.rollout.slot for s in lesson.learned] == learned
    assert student(ada).lessons == [lesson.learned]


def test_more_questions_are_the_same_ones_and_more() -> None:
    few, many = make_node(), make_node(questions=5)
    for node in (few, many):
        node.act()
    assert many.tried[:2] == few.tried


def picky() -> SelectiveSampler:
    settings = {"learnability": 1.0, "drop_duplicates": True, "keep_solved": True, "newcomer_share": 0.5}
    return SelectiveSampler(SamplingConfig.model_validate(settings))


def test_a_solved_group_is_learned_from_once_against_the_node_s_own_rate() -> None:
    swarm = MemorySwarm()
    ada = make_node("ada", swarm, sampler=picky(), policy=Parrot(WRONG))
    join(swarm, "bob").share([rollout(question(6), answers=[RIGHT, RIGHT])])
    ada.act()
    lesson = ada.learn()
    assert [(s.baseline, s.foreign, s.instructive) for s in lesson.foreign] == [(0.0, True, True)]
    assert len(ada.pool) == 0


def test_a_node_that_chooses_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    def two() -> list[Node]:
        swarm = MemorySwarm()
        ada = make_node("ada", swarm, sampler=picky(), sharing=Sharing(1), external=3, pool=Pool(32, 9))
        return [ada, make_node("bob", swarm, policy=Gifted(), local=6)]

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
        for kept in ("sharing.json", "node.json", *(["sampler.json"] if node.name == "ada" else [])):
            then, now = ((tmp_path / f"{node.name} {which}" / kept).read_text() for which in ("then", "again"))
            assert then == now
    assert max(times for key, times in student(nodes[0]).learned.items() if key.startswith("bob")) == 1
