"""Which level of a ladder a node draws from."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from fakes import Exact, Parrot

import shoal
from shoal.config.tasks import TasksConfig
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.selection.levels import Levels
from shoal.tasks import Tasks
from shoal.transports.memory import MemorySwarm

LADDER = {"name": "larger", "levels": [{"greatest": 20}, {"greatest": 50}, {"greatest": 99}], "weight": 3}
TASKS = Tasks(TasksConfig.model_validate({"sources": [LADDER, {"name": "larger", "parameters": {"greatest": 11}}]}))
LEVELS = ["larger#1@1", "larger#1@2", "larger#1@3"]


def answered(label: str, *rewards: float) -> Scored:
    question = TASKS.first(label, 1)
    completions = tuple(Completion.of("?") for _ in rewards)
    return Scored(Rollout(question.id, question.hash, completions, "ada", 1), question, rewards)


def shares(levels: Levels, draws: int = 600) -> list[float]:
    """How often each level comes, of all draws of the ladder."""
    counts = Counter(TASKS.label_of(question.id) for question in levels.draw(draws, "key"))
    return [counts[label] / sum(counts[each] for each in LEVELS) for label in LEVELS]


def test_it_begins_at_the_lowest_level() -> None:
    first, second, third = shares(Levels(TASKS))
    assert first > 0.9
    assert second > 0 < third


def test_a_learned_level_opens_the_next_and_is_drawn_less() -> None:
    levels = Levels(TASKS)
    levels.observe([answered("larger#1@1", 1, 1, 1, 1)] * 10)
    first, second, third = shares(levels)
    assert second > 0.7
    assert first < 0.25
    assert third < 0.1


def test_a_level_that_is_half_right_does_not() -> None:
    levels = Levels(TASKS)
    levels.observe([answered("larger#1@1", 1, 0)] * 10)
    assert shares(levels)[0] > 0.9


def test_a_node_that_knows_all_levels_but_the_last_is_there_soon() -> None:
    levels = Levels(TASKS)
    for round in range(6):
        for question in levels.draw(4, round):
            label = TASKS.label_of(question.id) or ""
            levels.observe([answered(label, *([1, 0] if label == "larger#1@3" else [1, 1]))])
    first, second, third = shares(levels)
    assert third > first < 0.4
    assert third > second


def test_a_first_level_that_is_never_right_does_not_hide_an_easier_one() -> None:
    levels = Levels(TASKS)
    levels.observe([answered("larger#1@1", 0, 0)] * 10)
    levels.observe([answered("larger#1@2", 1, 0)])
    assert shares(levels)[1] > 0.5


def test_all_else_is_drawn_as_without_ladders() -> None:
    levels = Levels(TASKS)
    levels.observe([answered("larger#1@1", 1, 1)] * 10)

    def plain(questions: list[Question]) -> list[str | None]:
        labels = [TASKS.label_of(question.id) for question in questions]
        return [label if label == "larger#2" else None for label in labels]

    asked, uniform = levels.draw(200, "key"), TASKS.draw(200, "key")
    assert plain(asked) == plain(uniform)
    assert 0.15 < plain(asked).count("larger#2") / 200 < 0.35
    assert [question.id.seed for question in asked] == [question.id.seed for question in uniform]


def test_the_mean_level_of_a_round() -> None:
    levels = Levels(TASKS)
    assert levels.mean_levels([]) == levels.mean_levels([answered("larger#2", 1)]) == {"larger#1": None}
    assert levels.mean_levels([answered("larger#1@1", 1), answered("larger#1@2", 1)]) == {"larger#1": 1.5}


def test_a_node_for_a_loop_of_one_s_own_climbs_as_well() -> None:
    node = shoal.make_node("ada", Parrot(), TASKS, Exact(), MemorySwarm().join("ada"), I=8)
    node.act()
    assert node.levels is not None
    assert node.levels.mean_levels(node.local) == {"larger#1": 1.0}
    plain = Tasks(TasksConfig.model_validate({"sources": [{"name": "larger"}]}))
    assert shoal.make_node("bob", Parrot(), plain, Exact(), MemorySwarm().join("bob")).levels is None


def test_a_checkpoint_goes_on_with_the_same_questions(tmp_path: Path) -> None:
    levels, again = Levels(TASKS), Levels(TASKS)
    for label in LEVELS[:2]:
        levels.observe([answered(label, 1, 0, 0)] * 7)
    levels.save(tmp_path)
    again.load(tmp_path)
    assert again.weights == levels.weights != Levels(TASKS).weights
    assert again.draw(50, "key", 7) == levels.draw(50, "key", 7)
