"""Before and after: the same held-out questions in each evaluation of a run."""

from __future__ import annotations

import io
import os
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow.parquet as pq
import pytest
from fakes import question
from rich.console import Console

from shoal.config.settings import Config
from shoal.display.answers import print_pairs
from shoal.errors import UserError
from shoal.evaluation.pass_at_k import Asked, Evaluation
from shoal.rollout import Completion, Part
from shoal.runs.folder import RunFolder
from shoal.runs.session import execute
from shoal.runs.tables import TRANSCRIPTS
from shoal.runs.transcripts import chosen, pairs, transcript_rows

read_metadata, parquet_file = pq.read_metadata, pq.ParquetFile


def row(node: str, text: str, reward: float, asked: str = "?") -> dict[str, Any]:
    return {"node": node, "task": "t", "prompt": asked, "completion": text} | {
        "finish_reason": "stop",
        "reward": reward,
    }


def test_all_are_kept_and_of_many_the_first_of_each_task() -> None:
    assert chosen({"a": [0] * 9}) == [("a", at) for at in range(9)]
    assert chosen({"a": [0], "b": [], "c": [0, 0]}) == [("a", 0), ("c", 0), ("c", 1)]
    kept = chosen({name: [0] * 90 for name in "abcdefgh"})
    assert kept == [(name, at) for name in "abcdefgh" for at in range(32)]


def test_a_question_without_an_answer_is_left_out() -> None:
    answered = Asked(question(5), (Completion.of("4"), Completion.of("5")), (1.0, 0.0))
    result = Evaluation(2, {"t": [1]}, 1, {"t": [Asked(question(10), (), ()), answered]})
    [kept] = transcript_rows("ada", result, [("t", 0), ("t", 1)], lambda asked: "4")
    assert kept["answer"] == "4"
    assert (kept["prompt"], kept["completion"], kept["reward"]) == ("say 0 5", "4", 1.0)


def test_pyarrow_reads_a_path_and_no_file_of_pythons(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its threads may free what it read while Python ends: bytes of Python's would then abort the program."""
    given: list[object] = []
    monkeypatch.setattr(pq, "read_metadata", lambda source: given.append(source) or read_metadata(source))
    monkeypatch.setattr(pq, "ParquetFile", lambda source, **more: given.append(source) or parquet_file(source, **more))
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.save(TRANSCRIPTS, 0, [row("ada", "no", 0.0)])
        folder.flush()
        pairs(folder.path, "ada")
    assert given
    assert all(isinstance(source, Path) for source in given)


def test_pairs_are_the_first_and_the_last_answers_of_one_node(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", "") as folder:
        assert pairs(folder.path, "ada") == []
        folder.save(TRANSCRIPTS, 0, [row("ada", "no", 0.0), row("bob", "39", 1.0), row("ada", "lost", 0.0, "gone?")])
        folder.flush()
        assert pairs(folder.path, "ada") == []
        folder.save(TRANSCRIPTS, 10, [row("ada", "maybe", 0.5)])
        folder.save(TRANSCRIPTS, 20, [row("ada", "39", 1.0)])
        folder.flush()
        [pair] = pairs(folder.path, "ada")
        assert (pair.before.completion, pair.before.right, pair.after.completion, pair.after.right) == (
            "no", False, "39", True,
        )  # fmt: skip
        folder.rewind(10)
        [pair] = pairs(folder.path, "ada")
        assert (pair.after.round, pair.after.completion) == (10, "maybe")


def test_conversations_are_kept_and_shown_with_what_the_environment_said(tmp_path: Path) -> None:
    talk = Completion((Part("48"), Part("52")), observations=("higher",))
    result = Evaluation(1, {"t": [0]}, 0, {"t": [Asked(question(5), (talk,), (0.0,))]})
    [kept] = transcript_rows("ada", result, [("t", 0)], lambda asked: None)
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.save(TRANSCRIPTS, 0, [kept])
        folder.save(TRANSCRIPTS, 10, [{**kept, "conversation": "no JSON"}])
        folder.flush()
        [pair] = pairs(folder.path, "ada")
    assert pair.before.conversation == (("48", "higher"), ("52", ""))
    assert pair.after.conversation == ()
    console = Console(width=80, record=True, file=io.StringIO())
    print_pairs(console, "ada", [pair])
    said = console.export_text()
    assert "before  wrong  48 (higher), 52\n" in said
    assert "after   wrong  48 52\n" in said


def test_files_that_are_none_are_one_line(tmp_path: Path) -> None:
    (tmp_path / TRANSCRIPTS).mkdir()
    part = tmp_path / TRANSCRIPTS / "from-round-000000.parquet"
    part.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UserError, match="cannot read"):
        pairs(tmp_path, "ada")
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(UserError, match="not an ordinary file"):
        pairs(tmp_path, "ada")


SETTINGS: dict[str, Any] = {
    "rounds": 2,
    "threads": 1,
    "tasks": {"only": ["chain_sum", "simple_equations"]},
    "policy": {"device": "cpu", "num_generations": 4, "max_completion_length": 8},
    "learner": {"learning_rate": 1e-3},
    "round": {"nodes": 2, "local": 2, "peers": 1, "workers": 0},
    "evaluation": {"every": 1, "questions": 2, "samples": 2},
}


@pytest.mark.slow
def test_a_run_keeps_the_same_questions_and_a_resumed_one_the_same_answers(tmp_path: Path) -> None:
    execute(Config.model_validate(SETTINGS), tmp_path / "whole")
    whole = pd.read_parquet(tmp_path / "whole" / TRANSCRIPTS)
    assert whole.groupby(["round", "node"]).size().to_dict() == {
        (round, node): 4 for round in range(3) for node in ("node-1", "node-2")
    }
    assert whole["prompt"].nunique() == 4
    first = SETTINGS | {"rounds": 1}
    execute(Config.model_validate(first), tmp_path / "parts")
    execute(Config.model_validate(SETTINGS), resume=tmp_path / "parts")
    assert pd.read_parquet(tmp_path / "parts" / TRANSCRIPTS).equals(whole)
