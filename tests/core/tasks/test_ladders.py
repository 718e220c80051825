"""Tasks in several levels of difficulty."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rollout import Question
from shoal.tasks import Tasks
from shoal.tasks.create import create_levels
from shoal.tasks.draw import InvalidRollout, validate

KEY = ("reef", "c0ffee", 7)
LEVELS = [{"max_terms": terms, "max_digits": 2} for terms in (2, 3, 4, 5)]
FOUR = {"name": "chain_sum", "levels": LEVELS}


def tasks_of(*entries: dict[str, Any], **settings: Any) -> Tasks:
    return Tasks(TasksConfig.model_validate({"sources": list(entries), **settings}))


TASKS = tasks_of(FOUR, {"name": "gcd"})


def test_each_level_is_a_task_of_its_own() -> None:
    assert TASKS.labels == ["chain_sum@1", "chain_sum@2", "chain_sum@3", "chain_sum@4", "gcd"]
    assert TASKS.ladders == {"chain_sum": TASKS.labels[:4]}
    assert TASKS.weights == [0.25, 0.25, 0.25, 0.25, 1.0]
    held_out = TASKS.held_out(8, 0)
    assert [len(questions) for questions in held_out.values()] == [8] * 5
    assert len({question.id.config for questions in held_out.values() for question in questions}) == 5
    for label in TASKS.labels:
        assert TASKS.label_of(TASKS.first(label, 3).id) == label


def test_a_list_goes_over_the_parameters() -> None:
    spec = TaskSpec(name="gcd", parameters={"min_value": 5, "max_value": 9}, levels=[{}, {"max_value": 99}])
    found = create_levels(spec)
    assert [level.parameters for _, level in found] == [spec.parameters, {"min_value": 5, "max_value": 99}]
    assert all(level.levels == [] for _, level in found)


def test_a_ladder_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "sandbox")
    tasks = tasks_of({"name": "test_verifier_tasks:Echo", "levels": [{"salt": "a"}, {"salt": "b"}]})
    assert tasks.labels == ["echo@1", "echo@2"]
    assert tasks.draw(3, "k") == tasks.draw(3, "k")


def test_repeated_names_are_numbered_before_levels() -> None:
    tasks = tasks_of({"name": "gcd"}, {"name": "gcd", "levels": [{"max_value": 5}, {"max_value": 9}]})
    assert tasks.labels == ["gcd#1", "gcd#2@1", "gcd#2@2"]


def test_examples_and_the_form_of_answers_are_for_each_level() -> None:
    tasks = tasks_of(FOUR | {"examples": 2, "answer": "tag"})
    shown = [tasks.first(label, 1).examples for label in tasks.labels]
    assert all(len(examples) == 4 and "<answer>" in examples[1].content for examples in shown)
    assert len(set(shown)) == 4
    assert {config for _, config in map(tasks.identity, tasks.labels)}.isdisjoint(task.config for task in tasks.tasks)


def test_without_a_node_s_own_weights_all_levels_come_alike() -> None:
    drawn = [TASKS.label_of(question.id) for question in TASKS.draw(800, "k")]
    assert 330 < drawn.count("gcd") < 470
    assert all(60 < drawn.count(label) < 145 for label in TASKS.labels[:4])


def test_other_tasks_are_drawn_as_ever() -> None:
    """The digits of runs without ladders: recorded before there were any."""
    plain = tasks_of({"name": "gcd"}, {"name": "lcm", "weight": 2.5})
    assert [(question.id.task, question.id.seed) for question in plain.draw(3, "node key", 17)] == [
        ("lcm", 3249798387174443540),
        ("lcm", 981696875503943175),
        ("gcd", 6730728790513188417),
    ]


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"name": "chainsum", "levels": [{}, {"max_terms": 3}]}, "level 1: .* did you mean 'chain_sum'"),
        ({"name": "chain_sum", "levels": [{"max_term": 3}, {}]}, "level 1: .* did you mean 'max_terms'"),
        ({"name": "chain_sum", "levels": [{}, {"max_terms": 1}]}, "level 2: .* refuses"),
        ({"name": "gcd", "levels": [{}, {"min_value": 1}]}, "levels 1 and 2 are the same"),
    ],
)
def test_mistakes_are_named(entry: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        tasks_of(entry)
    assert "\n" not in str(caught.value)


def test_a_level_may_not_be_listed_a_second_time() -> None:
    with pytest.raises(UserError, match="listed twice"):
        tasks_of(FOUR, {"name": "chain_sum", "parameters": TASKS.specs[1].parameters})


def refusal(question: Question, slot: int) -> str:
    """Why nobody takes an answer to `question` in this slot of the draw with `KEY`; empty if it is taken."""
    try:
        validate(TASKS, question.id, question.hash, 1, (KEY, slot))
    except InvalidRollout as refused:
        return refused.reason
    return ""


def test_a_peer_may_choose_a_level_and_no_question() -> None:
    for slot, drawn in enumerate(TASKS.draw(40, *KEY)):
        for label in TASKS.labels[:4]:
            if drawn.id.task == "chain_sum":
                given = TASKS.first(label, drawn.id.seed)
                assert refusal(given, slot) == ""
                assert refusal(given, slot + 1) == "seed"
                for index in range(given.id.index + 4):
                    other = TASKS.made(label, drawn.id.seed, index)
                    assert (refusal(other, slot) == "") == (index == given.id.index)
                easier = TASKS.made(label, drawn.id.seed + 1, 0)
                assert refusal(easier, slot) in ("seed", "held out")


def test_a_level_that_is_not_on_the_list_is_no_task() -> None:
    slot, drawn = next((s, q) for s, q in enumerate(TASKS.draw(40, *KEY)) if q.id.task == "chain_sum")
    fifth = tasks_of(FOUR | {"levels": [*LEVELS, {"max_terms": 6}]}).first("chain_sum@5", drawn.id.seed)
    assert refusal(fifth, slot) == "task"
    made_up = replace(drawn, id=replace(drawn.id, config="0" * 32))
    assert refusal(made_up, slot) == "task"


def test_the_same_levels_by_a_config_that_was_sent() -> None:
    config = TasksConfig.model_validate_json(TASKS.config.model_dump_json())
    assert Tasks(config).draw(20, "k") == TASKS.draw(20, "k")
