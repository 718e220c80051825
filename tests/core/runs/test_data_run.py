"""Whole runs on data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import data_rewards
import pytest
from data_files import SUMS, write

import shoal
from shoal.errors import UserError
from shoal.runs.folder import read_metrics
from shoal.runs.record import readings
from shoal.runs.session import execute

SETTINGS: dict[str, Any] = {
    "model": "guppy",
    "nodes": 2,
    "local": 2,
    "peers": 2,
    "num_generations": 4,
    "threads": 1,
    "device": "cpu",
    "eval_questions": 4,
    "eval_samples": 1,
}
WITH_LEVELS = [{**row, "level": number % 3} for number, row in enumerate(SUMS)]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_two_nodes_learn_from_a_file_and_the_folder_repeats_it(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    result = shoal.run(data=path, rewards=[data_rewards.short], rounds=3, out=tmp_path / "one", **SETTINGS)
    assert result.finished
    assert not result.warnings
    assert {"eval/pass@1", "eval/pass@1/sums", "eval/blind", "eval/blind/sums"} <= set(result.metrics.columns)
    texts = {row["prompt"] for row in SUMS}
    assert set(result.rollouts["prompt"]) <= texts
    assert result.learned["peer"].any(), "they learn from each other"
    again = shoal.run(shoal.load_config(tmp_path / "one" / "config.toml", allow_code=True), out=tmp_path / "two")
    columns = ["round", "node", "reward/local"]
    assert again.metrics[columns].equals(result.metrics[columns])


@pytest.mark.slow
@pytest.mark.parametrize("reward", [data_rewards.right, "data_rewards:right"], ids=["function", "name"])
def test_rows_in_memory_with_a_reward_as_trl_takes_it(tmp_path: Path, reward: Any) -> None:
    result = shoal.run(data=WITH_LEVELS, rewards=[reward], rounds=2, out=tmp_path / "run", **SETTINGS)
    assert result.finished
    assert not result.warnings
    rows = result.rollouts
    assert ((rows["reward"] > 0) == [a in t for a, t in zip(_sums(rows), rows["completion"], strict=True)]).all()


@pytest.mark.slow
def test_prompts_without_answers_need_a_reward_and_have_no_held_out_figures(tmp_path: Path) -> None:
    rows = [{"prompt": f"Say {n}"} for n in range(40)]
    with pytest.raises(UserError, match=r"'data' has no right answers .*: add --reward"):
        shoal.run(data=rows, rounds=2, out=tmp_path / "none", **SETTINGS)
    assert not (tmp_path / "none").exists()
    result = shoal.run(
        data=rows, rewards=[data_rewards.short], rounds=2, out=tmp_path / "run", max_completion_length=8, **SETTINGS
    )
    assert result.finished
    assert "eval/pass@1" not in result.metrics.columns
    assert (result.metrics["reward/local"] > 0).all()
    assert shoal.run(resume=result.folder, rounds=3, allow_code=True).finished


@pytest.mark.slow
def test_a_dataset_of_datasets(tmp_path: Path) -> None:
    datasets = pytest.importorskip("datasets")
    both = datasets.DatasetDict(train=datasets.Dataset.from_list(SUMS[:60]), test=datasets.Dataset.from_list(SUMS[60:]))
    result = shoal.run(data=both, rounds=1, out=tmp_path / "run", **SETTINGS)
    assert set(result.rollouts["prompt"]) <= {row["prompt"] for row in SUMS[:60]}
    assert shoal.evaluate("guppy", data=both, questions=4, samples=1).pass_at(1).value >= 0


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (7, "give a path"),
        ([{"prompt": object(), "answer": "1"}], "row 1 of the data cannot be kept as JSON"),
        ([{"prompt": "a", "answer": "1"}], "has 1 row to train on, .*: give 50 or more"),
        ([], "has no rows"),
        ({"path": "gone.jsonl"}, "there is no file"),
    ],
)
def test_mistakes(tmp_path: Path, data: Any, message: str) -> None:
    with pytest.raises(UserError, match=message):
        shoal.run(data=data, out=tmp_path / "run", rounds=1)
    assert not (tmp_path / "run").exists()


def test_questions_that_are_too_long_are_left_out_and_said(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", [*SUMS, *({"prompt": f"{n} " * 2000, "answer": "1"} for n in range(8))])
    outcome = shoal.run(data=path, rounds=2, out=tmp_path / "run", questions_per_round=40, **SETTINGS)
    assert outcome.finished
    missing = [row["completions/missing"] for row in read_metrics(tmp_path / "run") if row["round"]]
    assert sum(missing) > 0


def test_worked_examples_that_leave_no_room_are_said_at_the_start(tmp_path: Path) -> None:
    path = write(tmp_path / "q.jsonl", [{"prompt": letter, "answer": "1"} for letter in "abcdefghijklmnopqrstuvwxyz"])
    settings = {**SETTINGS, "examples": 16, "max_completion_length": 480}
    with pytest.raises(UserError, match=r"takes \d+ tokens.*: lower --max-completion-length or --examples"):
        shoal.run(data=path, rounds=1, out=tmp_path / "run", **settings)


def test_a_function_that_others_cannot_find() -> None:
    with pytest.raises(UserError, match="define it at the top of a file"):
        shoal.run(rewards=[lambda completions: [0.0]], rounds=1)


def _sums(rows: Any) -> list[str]:
    return [str(eval(text.removesuffix("="))) for text in rows["prompt"]]


@pytest.mark.slow
def test_a_run_goes_on_with_the_data_that_it_began_with(tmp_path: Path) -> None:
    path = write(tmp_path / "sums.jsonl", SUMS)
    out = tmp_path / "run"
    assert shoal.run(data=path, rounds=1, out=out, **SETTINGS).finished
    write(path, [*SUMS[1:], {"prompt": "1 + 1 =", "answer": "2"}])
    config = shoal.load_config(out / "config.toml").model_copy(update={"rounds": 2})
    with pytest.raises(UserError, match="the task 'sums' is not the one that this run began with: its data or version"):
        execute(config, resume=out)
    write(path, SUMS)
    assert execute(config, resume=out).finished


def test_the_first_round_shows_what_was_read_of_a_few_answers() -> None:
    def row(completion: str, read: str | None, reward: float) -> dict[str, Any]:
        return {"completion": completion, "read": read, "reward": reward}

    wrong = [row("I do\nnot know", "no number", 0.0)] * 3
    rows = [*wrong, row("Let me see. " * 9 + "so **14**.", "14 as number", 1.0), *wrong, row("7", "7 as number", 0.0)]
    assert readings(rows) == [
        f'{"read":15}"7" -> 7 as number -> 0',
        f'{"":15}"… . Let me see. Let me see. Let me see. Let me see. so **14**." -> 14 as number -> 1',
        f'{"":15}"I do not know" -> no number -> 0',
    ]
    assert readings([row("14", None, 1.0)]) == [], "the task reads all of it"
