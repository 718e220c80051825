"""`shoal rescore`: the rewards of what a run recorded, computed again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from shoal.cli.main import main
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Completion
from shoal.runs.tables import ROLLOUTS, SCHEMA, Table, answer_columns
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

Capture = pytest.CaptureFixture[str]
CONFIG = TasksConfig(sources=[TaskSpec(name="chain_sum")])
LENGTHS = "def lengths(completions, **_):\n    return [0.8 * len(one[0]['content']) for one in completions]\n"


@pytest.fixture(scope="module")
def rows() -> list[dict[str, Any]]:
    """Right and wrong answers to four questions, with their rewards."""
    tasks = Tasks(CONFIG)
    found = []
    with Verifier(CONFIG) as verifier:
        for question in tasks.draw(4, "rescore"):
            texts = [str(tasks.answer(question.id)), "none", "", "none"]
            for text, reward in zip(texts, verifier.score([(question.id, texts)])[0], strict=True):
                id = question.id
                row = answer_columns("ada", question, Completion.of(text), reward, None)
                row |= {"version": id.version, "config": id.config, "seed": id.seed, "index": id.index, "live": True}
                found.append(row)
    assert [row["reward"] for row in found] == [1.0, 0.0, 0.0, 0.0] * 4
    return found


def make_run(folder: Path, rows: list[dict[str, Any]]) -> str:
    folder.mkdir()
    (folder / "config.toml").write_text('version = 2\n[[tasks.sources]]\nname = "chain_sum"\n')
    table = Table(folder / ROLLOUTS, SCHEMA)
    table.add(1, rows)
    table.write()
    return str(folder)


def test_the_same_scorer_changes_nothing(tmp_path: Path, rows: list[dict[str, Any]], capsys: Capture) -> None:
    run = make_run(tmp_path / "run", rows)
    before = {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()}
    assert main(["rescore", run]) == 0
    assert capsys.readouterr().out == (
        "16 answers: 0 rewards change, 0 up and 0 down\n"
        "pass@1 of these answers (1 or more): 0.250 before, 0.250 after\n"
    )
    assert {path: path.read_bytes() for path in Path(run).rglob("*") if path.is_file()} == before


def test_another_reward(
    tmp_path: Path, rows: list[dict[str, Any]], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = make_run(tmp_path / "run", rows)
    (tmp_path / "my_lengths.py").write_text(LENGTHS)
    monkeypatch.chdir(tmp_path)
    assert main(["rescore", run, "--reward", "my_lengths.py:lengths", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    after = [0.8 * len(row["completion"]) for row in rows]
    pairs = [(row["reward"], value) for row, value in zip(rows, after, strict=True)]
    assert told["answers"] == 16
    assert told["higher"] == sum(a < b for a, b in pairs)
    assert told["lower"] == sum(a > b for a, b in pairs)
    assert told["changed"] == told["higher"] + told["lower"]
    assert told["pass@1_before"] == 0.25
    assert told["pass@1_after"] == sum(value >= 1 for value in after) / 16
    assert len(told["examples"]) == min(10, told["changed"])
    assert {"before": 0.0, "after": 3.2, "prompt": rows[1]["prompt"], "completion": "none"} in told["examples"]
    assert main(["rescore", run, "--reward", "my_lengths.py:lengths"]) == 0
    shown = capsys.readouterr().out
    assert "  0 -> 3.2" in shown
    assert shown.count(" -> ") == 2 * len(told["examples"])


def test_what_is_left_out_is_said(tmp_path: Path, rows: list[dict[str, Any]], capsys: Capture) -> None:
    """Conversations, questions of other tasks, and what a stranger may have written into the columns."""
    odd = [
        rows[1] | {"conversation": '[["a", "b"]]'},
        rows[1] | {"task": "gone"},
        rows[2] | {"prompt": "another one"},
        rows[2] | {"seed": -1},
        rows[2] | {"index": None},
        rows[3] | {"reward": None},
        rows[3] | {"completion": None},
    ]
    assert main(["rescore", make_run(tmp_path / "run", [*rows, *odd]), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["answers"], told["changed"]) == (16, 0)
    assert {reason.split()[1]: number for reason, number in told["left_out"].items()} == {
        "conversations,": 1,
        "questions": 4,
        "an": 2,
    }


def test_a_folder_that_is_no_run(tmp_path: Path, rows: list[dict[str, Any]], capsys: Capture) -> None:
    def complaint(run: str | Path) -> str:
        assert main(["rescore", str(run)]) == 2
        out, err = capsys.readouterr()
        assert not out
        assert err.count("\n") == 1
        return err

    assert "config.toml" in complaint(tmp_path)
    assert "no answers" in complaint(make_run(tmp_path / "empty", []))
    assert "no answers" in complaint(make_run(tmp_path / "other", [rows[0] | {"task": "gone"}]))
    damaged = Path(make_run(tmp_path / "damaged", rows))
    [part] = (damaged / ROLLOUTS).iterdir()
    part.write_bytes(part.read_bytes()[:-100])
    assert "cannot read" in complaint(damaged)


def test_tables_of_older_runs(tmp_path: Path, rows: list[dict[str, Any]], capsys: Capture) -> None:
    run = make_run(tmp_path / "run", rows)
    [part] = (tmp_path / "run" / ROLLOUTS).iterdir()
    table = pq.ParquetFile(part).read().drop_columns(["conversation", "read", "answer"])
    pq.write_table(
        table.rename_columns(["question" if name == "prompt" else name for name in table.column_names]), part
    )
    assert main(["rescore", run]) == 0
    assert capsys.readouterr().out.startswith("16 answers: 0 rewards change")
