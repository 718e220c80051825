"""An archive in the window: who contributed what, pass rates, and a rollout with its proof; made by strangers, too."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_watch_server import ask
from watched import HOSTILE

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.rollout import Completion, Rollout
from shoal.tasks import Tasks
from shoal.tasks.draw import slot_seed
from shoal.tasks.task import right_answer
from shoal.wire.rollouts import seal
from shoal_web.serving.guard import Access
from shoal_web.watch.archive import ArchiveSource, is_archive
from shoal_web.watch.server import make_app
from shoal_web.watch.source import RolloutQuery, RowQuery
from shoal_web.watch.sources import Sources

archives = pytest.importorskip("shoal_extras.archive.format")
TASK = "spell_backward"
ROUNDS = 4


def archive(folder: Path, claimed: float | None = None) -> Path:
    """Of two makers: one with the model guppy, half of whose answers are right, and one whose answers are wrong.
    `claimed`: what the archiver says of all rewards."""
    tasks = Tasks(TasksConfig(suite="pond"))
    task = dict(zip(tasks.labels, tasks.tasks, strict=True))[TASK]
    rows = []
    for model in ("guppy", "smollm2"):
        maker = Identity.generate()
        for round in range(ROUNDS):
            question = tasks.first(TASK, slot_seed(("reef", maker.id, round), 0, task.name))
            right = right_answer(task, question.id) or ""
            texts = [right, "no"] if model == "guppy" else ["no", "nor this"]
            rollout = Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), maker.name, round, 0)
            data = seal(rollout, maker, "reef", time.time() - 3600 + 60 * round, model=model)
            rewards = task.score(question.id, texts) if claimed is None else [claimed] * len(texts)
            rows.append(archives.Row.made(data, question, rewards))
    rows.sort(key=lambda row: (row.opened().time, row.id))
    archives.write_part(folder, rows[:3])
    archives.write_part(folder, rows[3:])
    return folder


def test_who_contributed_what_and_how_often_models_are_right(tmp_path: Path) -> None:
    folder = archive(tmp_path / "reef")
    assert is_archive(folder)
    with closing(ArchiveSource(folder, "reef")) as source:
        summary = source.summary()
        counts = {(row["what"], row["task"], row["model"]): row for row in summary["counts"] if row["what"] != "node"}
        whole = counts["all", None, None]
        assert (whole["rollouts"], whole["completions"], whole["share"]) == (2 * ROUNDS, 4 * ROUNDS, 0.25)
        assert whole["last"] - whole["first"] == pytest.approx(180, abs=1)
        assert counts["model and task", TASK, "guppy"]["share"] == 0.5
        assert counts["model", None, "smollm2"]["share"] == 0.0
        assert sorted(row["rollouts"] for row in summary["counts"] if row["what"] == "node") == [ROUNDS, ROUNDS]
        assert sum(row["rollouts"] for row in summary["timeline"]) == 2 * ROUNDS
        assert (summary["trouble"], summary["completions"], summary["tasks"]) == ("", 4 * ROUNDS, [TASK])
        assert len(source.rollouts(RolloutQuery(least=1.0))["rollouts"]) == ROUNDS
        assert len(source.rollouts(RolloutQuery(text="NOR THIS"))["rollouts"]) == ROUNDS


@pytest.mark.parametrize("claimed", [None, 1.0])
def test_a_rollout_is_proven_when_it_is_opened(tmp_path: Path, claimed: float | None) -> None:
    with closing(ArchiveSource(archive(tmp_path / "reef", claimed), "reef")) as source:
        first = source.rollouts(RolloutQuery(text="nor this"))["rollouts"][0]
        whole = source.rollout(RowQuery(part=first["part"], row=first["row"]))
        proof = whole["proof"]
        assert [each["completion"] for each in whole["completions"]] == ["no", "nor this"]
        assert len(proof["key"]) == 64
        assert bool(proof["wrong"]) == (claimed is not None)
        assert max(proof["rewards"]) < 1
        assert claimed or proof["rewards"] == [each["reward"] for each in whole["completions"]]


def test_an_archive_of_strangers_is_shown_within_bounds(tmp_path: Path) -> None:
    folder = archive(tmp_path / "reef")
    spoil(folder)
    with closing(Sources([source := ArchiveSource(folder, "reef")])) as sources:
        app = make_app(sources, Access())
        at = f"/api/runs/{source.id}"
        for what in ("summary", "rollouts?limit=50"):
            answer = ask(app, f"{at}/{what}")
            assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
            assert len(answer.body) < 200_000
        [first, *_] = answer.json["rollouts"]
        assert ask(app, f"{at}/rollout?part={first['part']}&row={first['row']}").status == 200
        for bad in ("part=9&row=0", "part=0&row=999999"):
            assert ask(app, f"{at}/rollout?{bad}").status == 404
        for part in (folder / "completions").iterdir():
            part.write_bytes(b"PAR1" + b"\xff" * 5000 + b"PAR1")
        summary = ask(app, f"{at}/summary").json
        assert summary["completions"] == 0
        assert "cannot be read" in summary["trouble"]


def spoil(folder: Path) -> None:
    """Strangers' texts in all columns that the window shows."""
    for part in (folder / "completions").iterdir():
        table = pq.ParquetFile(part).read()
        texts = [HOSTILE[at % len(HOSTILE)].encode(errors="replace").decode() for at in range(len(table))]
        for name in ("task", "model", "node", "key", "prompt", "completion", "version", "finish_reason"):
            table = table.set_column(table.column_names.index(name), name, pa.array(texts, pa.string()))
        pq.write_table(table, part)
