"""A run that has nothing to learn from says why, shows answers, and says what to do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from shoal.config.settings import Config
from shoal.node import RoundResult
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.runs.diagnosis import ENOUGH, FLAT, ROUNDS, Diagnosis
from shoal.tasks import Tasks


def group(question: Question, answers: Sequence[str], rewards: Sequence[float], finish: str = "stop") -> Scored:
    completions = tuple(Completion.of(answer, finish) for answer in answers)
    return Scored(Rollout(question.id, question.hash, completions, "ada", 1), question, tuple(rewards))


def result(local: list[Scored], batch: list[Scored] | None = None) -> RoundResult:
    return RoundResult(local, local if batch is None else batch, UpdateResult())


def found(answers: Sequence[str], reward: float = 0.0, finish: str = "stop", **settings: Any) -> Diagnosis:
    """The diagnosis of three rounds in which two questions get these answers."""
    config = Config.model_validate({"tasks": {"suite": "tagged", "only": ["chain_sum"]}, **settings}).resolved()
    tasks = Tasks(config.tasks)
    diagnosis = Diagnosis(config, tasks)
    for round in range(ROUNDS):
        assert diagnosis.warning == ""
        asked = tasks.draw(2, round)
        diagnosis.look([result([group(question, answers, [reward] * len(answers), finish) for question in asked])])
    return diagnosis


@pytest.mark.parametrize(
    ("answers", "more", "cause", "said"),
    [
        (["<answer>1", "2"], {"finish": "length"}, "cut", "all 12 answers were cut at 32 tokens\n  do: raise --max-"),
        (["It is 1.", "2"], {}, "form", "none of 12 answers has the form asked for"),
        (["<answer>7</answer>"] * 2, {}, "alike", "the same, 0% are right\n  do: raise --temperature"),
        (
            ["<answer>7</answer>", "8"],
            {},
            "wrong",
            "wrong\n  do: take easier questions, --partial",
        ),
        (["<answer>7</answer>", "<answer>8</answer>"], {"reward": 1.0}, "solved", "all 12 answers are right"),
        (["<answer>7</answer>"], {"policy": {"num_generations": 1}}, "alone", "use --num-generations 8"),
    ],
)
def test_it_says_why_and_what_to_do_in_three_lines(
    answers: list[str], more: dict[str, Any], cause: str, said: str
) -> None:
    diagnosis = found(answers, **more)
    assert diagnosis.cause == cause
    first, do, shown = diagnosis.warning.splitlines()
    assert first.startswith("nothing to learn: ")
    assert do.startswith("  do: ")
    assert max(len(f"warning: {first}"), len(do), len(shown)) <= 80
    if cause not in ("alone",):
        answers_seen = 3 * 2 * len(answers)
        said = said.replace("12", str(answers_seen))
    assert said in diagnosis.warning
    assert f'-> "{answers[0]}" (right: ' in shown or diagnosis.cause == "solved"


def test_credit_in_steps_is_not_advised_to_those_who_have_it() -> None:
    answers = ["<answer>7</answer>", "8"]
    tasks = {"suite": "tagged", "only": ["chain_sum"], "partial_credit": True}
    assert "--partial-credit" not in found(answers, tasks=tasks).warning


def test_it_is_silent_as_long_as_something_is_learned() -> None:
    config = Config.model_validate({"tasks": {"only": ["chain_sum"]}}).resolved()
    tasks = Tasks(config.tasks)
    [question] = tasks.draw(1, "key")
    dead, live = group(question, ["1", "2"], [0.0, 0.0]), group(question, ["1", "2"], [0.0, 1.0])
    diagnosis = Diagnosis(config, tasks)
    for batch in ([dead], [dead], [live.as_peer()], [dead], [dead]):
        diagnosis.look([result([dead], batch)])
        assert diagnosis.warning == ""
    diagnosis.look([result([dead])])
    assert diagnosis.cause == "wrong"
    diagnosis.look([result([dead]), result([live])])
    assert (diagnosis.cause, diagnosis.warning) == ("", "")


def test_only_a_run_that_never_had_anything_to_learn_is_hopeless() -> None:
    config = Config.model_validate({"tasks": {"only": ["chain_sum"]}}).resolved()
    tasks = Tasks(config.tasks)
    [question] = tasks.draw(1, "key")
    dead, live = group(question, ["1", "2"], [0.0, 0.0]), group(question, ["1", "2"], [0.0, 1.0])
    for before in ([], [live]):
        diagnosis = Diagnosis(config, tasks)
        for one in before:
            diagnosis.look([result([one])])
        for _ in range(ENOUGH):
            assert not diagnosis.hopeless
            diagnosis.look([result([dead])])
        assert diagnosis.hopeless is (not before)
        assert f"all {2 * ENOUGH} answers" in diagnosis.warning


def test_what_is_quoted_of_answers_is_short_and_steers_nothing() -> None:
    shown = found(["\x1b[2J" + "<answer>" + "x" * 10**5, "\u202e"]).warning.splitlines()
    assert all(line.isprintable() and len(line) < 300 for line in shown)


def test_a_model_that_mostly_knows_the_answer_needs_harder_questions() -> None:
    config = Config.model_validate({"tasks": {"suite": "tagged", "only": ["chain_sum"]}}).resolved()
    tasks = Tasks(config.tasks)
    diagnosis = Diagnosis(config, tasks)
    for round in range(ROUNDS):
        rewards = [[1.0, 1.0], [1.0, 1.0], [0.0, 0.0]]
        groups = [group(q, ["<answer>7</answer>"] * 2, r) for q, r in zip(tasks.draw(3, round), rewards, strict=True)]
        diagnosis.look([result(groups)])
    assert "67% are right\n  do: take harder questions, or raise --temperature" in diagnosis.warning


class Given:
    """Rewards of one's own that give the same to all; None: they do not apply."""

    def __init__(self, mean: float | None) -> None:
        self.mean = mean

    def means(self, items: object) -> dict[str, float | None]:
        return {"own": self.mean}


@pytest.mark.parametrize(
    ("mean", "reward", "answers", "finish", "said"),
    [
        (None, 0.0, ["1", "2"], "stop", "all rewards are None\n  do: return a number"),
        (3.2, 3.2, ["1", "2"], "stop", "all rewards are 3.2\n  do: let the reward"),
        (3.2, 3.2, ["1", "2"], "length", "all rewards are 3.2, and all 12 answers were cut at"),
        (3.2, 3.2, ["1", "1"], "stop", "the same\n  do: raise --temperature"),
    ],
)
def test_the_cause_is_true_of_rewards_of_ones_own(
    mean: float | None, reward: float, answers: list[str], finish: str, said: str
) -> None:
    own = {"kind": "function", "function": "mine:score"}
    config = Config.model_validate({"tasks": {"suite": "tagged", "only": ["chain_sum"]}, "rewards": [own]}).resolved()
    tasks = Tasks(config.tasks)
    diagnosis = Diagnosis(config, tasks, Given(mean))  # type: ignore[arg-type]
    for round in range(ROUNDS):
        groups = [group(question, answers, [reward] * 2, finish) for question in tasks.draw(2, round)]
        diagnosis.look([result(groups)])
    assert said in diagnosis.warning


def test_an_environment_whose_scores_are_alike_beyond_1_is_not_called_solved() -> None:
    assert "all rewards are 3.2\n  do: let the reward" in found(["<answer>7</answer>", "8"], reward=3.2).warning


def test_rewards_that_do_not_rise_for_long_are_said_with_what_to_do() -> None:
    config = Config.model_validate({"tasks": {"only": ["chain_sum"]}}).resolved()
    tasks = Tasks(config.tasks)
    [question] = tasks.draw(1, "key")
    for last, flat in ((0.25, True), (0.75, False)):
        diagnosis = Diagnosis(config, tasks)
        for round in range(FLAT):
            assert not diagnosis.flat
            mean = 0.25 if round < FLAT // 2 else last
            live = group(question, ["1", "2"], [mean - 0.25, mean + 0.25])
            diagnosis.look([result([live])])
        assert bool(diagnosis.flat) == flat
        assert "do: stop if that is enough, or take easier tasks" in diagnosis.flat or not flat
        assert not diagnosis.warning
