"""Reward functions in TRL's contract, through the real worker: used unchanged, and misbehaving."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from data_files import data_config, write

from shoal.config.rewards import FunctionSection
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rewards import Combined, Entry, FunctionReward
from shoal.rewards.function_worker import Call, Function
from shoal.rollout import Question
from shoal.tasks import Tasks

TASKS = TasksConfig(sources=[TaskSpec(name="chain_sum", parameters={"max_terms": 3})])
HERE = "test_rewards_functions"
FAILED = -math.inf


def reward_of(name: str, **settings: object) -> FunctionReward:
    return FunctionReward(
        FunctionSection.model_validate({"kind": "function", "function": f"{HERE}:{name}", **settings}), TASKS
    )


@pytest.fixture(scope="module")
def question() -> Question:
    return Tasks(TASKS).draw(1, "key")[0]


@pytest.fixture(scope="module")
def naughty() -> Iterator[FunctionReward]:
    with reward_of("naughty", conversational=False, timeout=0.5) as reward:
        yield reward


def test_a_function_of_trls_documentation_is_used_unchanged(question: Question) -> None:
    with reward_of("format_reward_func") as reward:
        values = reward.score([(question, ["<think>a</think><answer>b</answer>", "b"]), (question, [])])
    assert values == [[1.0, 0.0], []]
    assert not +reward.failures


def test_a_column_has_the_answer_that_the_task_knows(question: Question) -> None:
    tasks = Tasks(TASKS)
    entry = tasks.tasks[0].entry(question.id.seed, question.id.index)  # type: ignore[attr-defined]
    with reward_of("ground_truth_func", conversational=False, columns={"ground_truth": "answer"}) as reward:
        assert reward.score([(question, [entry["answer"], "no"])]) == [[1.0, 0.0]]


def test_it_gets_all_that_trl_gives(question: Question) -> None:
    with reward_of("sees") as reward:
        assert reward.score([(question, ["4", "5"])]) == [[1.0, 1.0]], reward.trouble


@pytest.mark.slow
def test_it_may_be_a_coroutine_take_less_and_have_any_range(question: Question) -> None:
    with reward_of("patient", conversational=False) as reward:
        assert reward.score([(question, ["12345", "1" * 99])]) == [[0.5, 9.9]], reward.trouble
    with reward_of("few") as reward:
        assert reward.score([(question, ["a"])]) == [[1.0]]
    with reward_of("between", conversational=False) as reward:
        assert reward.score([(question, ["-1", "0", "1", "-7", "300"])]) == [[-1.0, 0.0, 1.0, -7.0, 300.0]]


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ("raise it", "error"),
        ("infinite", "infinite"),
        ("1e39", "infinite"),
        ("text", "error"),
        ("exit", "crash"),
        ("allocate", "error"),
        ("eval 1+1", "refused"),
        ("x" * 100_001, "too long"),
    ],
)
def test_what_fails_is_counted_alone(naughty: FunctionReward, question: Question, text: str, failure: str) -> None:
    naughty.failures.clear()
    assert naughty.score([(question, [f"fine {failure}", text])]) == [[1.0, FAILED]]
    assert +naughty.failures == {failure: 1}


def test_what_fails_is_the_worst_of_its_group_whatever_the_range(question: Question) -> None:
    with reward_of("naughty", conversational=False) as reward:
        assert Combined([Entry("it", reward)]).score([(question, ["fine", "raise it", "infinite"])]) == [
            [1.0, 0.0, 0.0]
        ]
    with reward_of("between", conversational=False) as reward:
        assert Combined([Entry("it", reward)]).score([(question, ["-1", "-7", "inf"])]) == [[-1.0, -7.0, -7.0]]


@pytest.mark.slow
def test_what_takes_too_long_is_killed_and_the_others_are_not_affected(
    naughty: FunctionReward, question: Question
) -> None:
    naughty.failures.clear()
    start = time.monotonic()
    assert naughty.score([(question, ["before", "loop", "after"])]) == [[1.0, FAILED, 1.0]]
    assert +naughty.failures == {"timeout": 1}
    assert time.monotonic() - start < 60


@pytest.mark.parametrize("verb", ["touch", "write", "swallow"])
def test_what_a_function_may_not_do_is_refused(
    naughty: FunctionReward, question: Question, tmp_path: Path, verb: str
) -> None:
    naughty.failures.clear()
    assert naughty.score([(question, [f"{verb} {tmp_path / 'file'}"])]) == [[FAILED]]
    assert +naughty.failures == {"refused": 1}
    assert not (tmp_path / "file").exists()


def test_unguarded_it_may(question: Question, tmp_path: Path) -> None:
    with reward_of("naughty", conversational=False, guarded=False) as reward:
        assert reward.score([(question, [f"write {tmp_path / 'file'}"])]) == [[1.0]]
    assert (tmp_path / "file").exists()


def test_the_first_failure_is_told_with_the_function_and_their_number(question: Question) -> None:
    with reward_of("naughty", conversational=False, timeout=0.5) as reward:
        reward.score([(question, ["fine"])])
        assert reward.trouble == ""
        reward.score([(question, ["fine too", "raise it", "infinite", "exit"])])
        assert reward.trouble.startswith(f"function '{HERE}:naughty': ")
        assert "Error" in reward.trouble
        assert reward.trouble.endswith(" (3 of 5 answers failed)")


def test_a_column_that_no_task_has_is_told_at_the_start() -> None:
    columns = {"ground_truth": "anser"}
    with pytest.raises(UserError, match="mean 'answer'"):
        reward_of("ground_truth_func", columns=columns)


def test_none_is_no_reward(naughty: FunctionReward, question: Question) -> None:
    naughty.failures.clear()
    assert naughty.score([(question, ["none", "nan", "fine"])]) == [[None, None, 1.0]]
    assert not +naughty.failures


@pytest.mark.parametrize(("verb", "count"), [("two", 3), ("nothing", 1)])
def test_a_wrong_number_of_values_is_an_error_at_once(
    naughty: FunctionReward, question: Question, verb: str, count: int
) -> None:
    with pytest.raises(UserError, match=f"naughty' returned {count} values for 2 completions"):
        naughty.score([(question, [f"fine {verb}", verb])])


def test_whatever_trl_takes_for_a_number_is_one(question: Question) -> None:
    with reward_of("typed", conversational=False) as reward:
        for kind in ("int", "bool", "float32", "array", "generator", "tuple"):
            assert reward.score([(question, [kind, f"{kind} {kind}"])]) == [[1.0, 0.0]], reward.trouble


def test_lone_surrogates_and_markup_pass(naughty: FunctionReward, question: Question) -> None:
    assert naughty.score([(question, ["\ud800 x", "\0", "[bold]"])]) == [[1.0, 1.0, 1.0]]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (f"{HERE}:format_reward", "did you mean 'format_reward_func'"),
        ("no_such_module:f", "cannot import 'no_such_module'"),
        ("os:system", "takes neither `prompts` nor `completions`"),
        ("subprocess:call", "takes neither `prompts` nor `completions`"),
        (f"{HERE}:ground_truth_func", "wants an argument 'ground_truth'"),
    ],
)
def test_what_cannot_be_had_is_told_at_the_start(name: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        FunctionReward(FunctionSection(kind="function", function=name), TASKS)


@pytest.mark.parametrize("chats", [False, True], ids=["texts", "chats"])
def test_a_function_gets_texts_where_the_prompts_of_the_data_are_texts(tmp_path: Path, chats: bool) -> None:
    text = "2 + 2 ="
    chat = [{"role": "user", "content": text}]
    config = data_config(write(tmp_path / "sums.jsonl", [{"prompt": chat if chats else text, "answer": "4"}]))
    [question] = Tasks(config).draw(1, "key")
    function = Function(FunctionSection(kind="function", function=f"{HERE}:naughty", guarded=False), Tasks(config))
    given = function.arguments([Call(question.id, question.prompt, "4")])
    said: list[Any] = [chat, [{"role": "assistant", "content": "4"}]] if chats else [text, "4"]
    assert [given["prompts"], given["completions"]] == [[one] for one in said]
