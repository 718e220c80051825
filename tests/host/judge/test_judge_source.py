"""A judge on the page: its folder, also while it writes, and what strangers may have put there."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from judging import rows
from test_watch_server import ask
from watched import HOSTILE

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from starlette.types import ASGIApp

from shoal.errors import UserError
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import name_of
from shoal_host.judge import source as judge_source
from shoal_host.judge.records import FILE, SCHEMA, Records
from shoal_host.judge.reports import leaderboard_of
from shoal_host.judge.source import POINTS, JudgeSource
from shoal_web.serving.guard import Access
from shoal_web.watch.server import make_app
from shoal_web.watch.source import BusyError, CurveQuery, Source
from shoal_web.watch.sources import Sources

KEYS = [bytes([at]) * 32 for at in range(8)]


class Book:
    """The records of a judge, written as it writes them; open, so that they lie in a WAL."""

    def __init__(self, folder: Path) -> None:
        Records(folder).close()
        self.path = folder / FILE
        self._records = sqlite3.connect(self.path, isolation_level=None)
        self._ids = itertools.count(1)

    def add(self, key: bytes, round: int, score: float | None = 1.0, **more: Any) -> None:
        """A question and how it ended; without a score it has not."""
        given = {"model": "guppy", "in_swarm": 1, "task": "gcd", "outcome": "scored", "failure": "", "time": 1e9} | more
        id = next(self._ids)
        self._records.execute("INSERT OR IGNORE INTO nodes (key, first) VALUES (?, 0)", (key,))
        [node] = self._records.execute("SELECT id FROM nodes WHERE key = ?", (key,)).fetchone()
        heads = (id, node, id, round, given["model"], given["in_swarm"], given["time"], given["time"] + 60)
        rest = (given["task"], given["task"], "1", "c", 1, 0, b"h", b"p", b"s", b"g")
        self._records.execute(f"INSERT INTO asks VALUES ({', '.join('?' * 18)})", (*heads, *rest))
        if score is not None:
            outcome = (id, given["time"], score, given["failure"], given["outcome"])
            self._records.execute("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?)", outcome)

    def close(self) -> None:
        self._records.close()


def fill(book: Book, rounds: int = 60) -> None:
    """Three nodes that learn in a swarm and one that does not."""
    random = Random(0)
    for round, (at, key) in itertools.product(range(rounds), enumerate(KEYS[:4])):
        chance = 0.3 + (0.5 * round / rounds if at < 3 else 0.05)
        score = float(random.random() < chance)
        book.add(key, round, score, in_swarm=int(at < 3), task=("gcd", "lcm")[round % 2], model=f"model-{at // 2}")


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    with contextlib.closing(Book(tmp_path / "judge")) as made:
        yield made


def page_of(source: Source) -> ASGIApp:
    return make_app(Sources([source]), Access())


def test_the_leaderboard_and_curves_are_those_of_the_reports(book: Book) -> None:
    fill(book)
    source = JudgeSource(book.path.parent)
    page = page_of(source)
    at = f"/api/runs/{source.id}"
    summary = ask(page, f"{at}/summary").json
    assert summary["views"] == ["judge"]
    assert summary["board"] == json.loads(json.dumps(leaderboard_of(book.path)))
    assert summary["board"][0]["node"] in map(name_of, KEYS)
    assert summary["totals"]["nodes"] == 4
    assert summary["totals"]["right"] + summary["totals"]["wrong"] == 240
    found = ask(page, f"{at}/curve?metric=pass@1&by=mean&smooth=20").json["series"]
    scores: dict[int, list[float]] = {}
    for row in rows(book.path):
        if row["model"] == "model-0":
            scores.setdefault(row["number"] // 20, []).append(row["score"])
    expected = []
    for place, each in sorted(scores.items()):
        share = sum(score >= 1 for score in each) / len(each)
        ends = (round(one, 5) for one in (share, *wilson(share, len(each))))
        expected.append([20 * place + 9.5, *ends, len(each)])
    [series] = [each for each in found if each["name"] == "swarm: model-0"]
    assert {each["name"] for each in found} == {"swarm: model-0", "swarm: model-1", "alone: model-1"}
    assert series["points"] == expected
    nodes = ask(page, f"{at}/curve?metric=pass@1&by=node").json["series"]
    assert {each["name"] for each in nodes} == set(map(name_of, KEYS[:4]))


def test_how_questions_ended(book: Book) -> None:
    for round, outcome in enumerate(["scored", "lapsed", "void", "scored"]):
        book.add(KEYS[0], round, 0.0, outcome=outcome, failure="too slow" if round == 3 else "")
    book.add(KEYS[1], 1, None)
    summary = JudgeSource(book.path.parent).summary()
    assert summary["totals"] == {
        "right": 0, "wrong": 2, "lapsed": 1, "void": 1, "under way": 1, "nodes": 2,
    }  # fmt: skip


def test_it_moves_while_the_judge_writes_and_changes_nothing(book: Book, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(book, 5)
    source = JudgeSource(book.path.parent)
    before = source.summary()
    files = sorted(path.name for path in book.path.parent.iterdir())
    book.add(KEYS[5], 1, 1.0)
    source._mark, source._due = 0.0, 0.0  # as if some time had passed
    source.look()
    assert source.version == before["version"] + 1
    assert len(source.summary()["board"]) == len(before["board"]) + 1
    assert sorted(path.name for path in book.path.parent.iterdir()) == files
    with pytest.raises(Exception, match="readonly"):
        JudgeSource(book.path.parent)._found("DELETE FROM outcomes")


def test_a_round_of_a_stranger_presses_nothing_into_a_corner(book: Book) -> None:
    fill(book)
    for far in range(3):
        book.add(KEYS[7], 2**53 - far, 1.0)
    series = JudgeSource(book.path.parent).curve(CurveQuery(metric="pass@1", by="node"))["series"]
    assert max(point[0] for each in series for point in each["points"]) < 300
    assert max(len(each["points"]) for each in series) <= POINTS


def test_an_empty_judge(book: Book) -> None:
    source = JudgeSource(book.path.parent)
    assert source.summary()["board"] == []
    assert source.curve(CurveQuery(metric="pass@1"))["series"] == []
    assert source.curve(CurveQuery(metric="pass@1", by="node"))["series"] == []


@pytest.mark.parametrize(
    "what", ["rollouts", "rollout?part=1&row=1", "graph", "curve?metric=reward", "curve?metric=pass@1&by=task"]
)
def test_what_a_judge_has_not_is_not_there(book: Book, what: str) -> None:
    source = JudgeSource(book.path.parent)
    assert ask(page_of(source), f"/api/runs/{source.id}/{what}").status == 404


def test_names_of_strangers_are_strings(book: Book) -> None:
    names = [text[:256].replace("\x00", "") for text in HOSTILE]
    for at, text in enumerate(names):
        book.add(KEYS[at % 8], at, 1.0, model=text, task=text[:100], failure=text[:100])
    source = JudgeSource(book.path.parent)
    page = page_of(source)
    board = ask(page, f"/api/runs/{source.id}/summary")
    assert board.headers["content-type"] == "application/json"
    assert {row["model"] for row in board.json["board"]} == set(names)
    for what in ("curve?metric=pass@1&by=mean", "curve?metric=pass@1"):
        series = ask(page, f"/api/runs/{source.id}/{what}").json["series"]
        assert all(len(each["name"]) <= 220 for each in series)


@pytest.mark.parametrize("content", [None, b"", b"no database at all" * 100])
def test_what_is_no_judge_s_folder_is_said_in_a_line(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / FILE).write_bytes(content)
    with pytest.raises(UserError) as told:
        JudgeSource(tmp_path)
    assert str(tmp_path) in str(told.value)
    assert "\n" not in str(told.value)


@pytest.mark.timeout(60)
def test_records_that_are_no_judge_s_are_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    os.mkfifo(tmp_path / "records.sqlite")
    with pytest.raises(UserError, match="no records"):
        JudgeSource(tmp_path)
    (tmp_path / "records.sqlite").unlink()
    with sqlite3.connect(tmp_path / "records.sqlite") as records:
        records.executescript(SCHEMA)
    source = JudgeSource(tmp_path)
    assert source.summary()["board"] == []
    with sqlite3.connect(tmp_path / "records.sqlite") as records:
        records.executescript("DROP TABLE asks; DROP TABLE nodes; CREATE TABLE nodes (id, key);")
        records.executescript(
            "CREATE VIEW asks AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) "
            "SELECT i AS id, 1 AS node, i AS round, 'm' AS model, 1 AS in_swarm, 'l' AS label, 1.0 AS asked FROM n"
        )
    monkeypatch.setattr(judge_source, "PATIENCE", 0.2)
    source._found.cache_clear()
    with pytest.raises(BusyError):
        source.summary()
    with sqlite3.connect(tmp_path / "records.sqlite") as records:
        records.executescript("DROP VIEW asks; CREATE TABLE asks (id, node, round, model, in_swarm, label, asked);")
        records.execute("INSERT INTO nodes VALUES (1, 'no bytes')")
        records.execute("INSERT INTO asks VALUES (1, 1, 'x', x'ff', 'y', 1, 'z')")
        records.execute("INSERT INTO outcomes VALUES (1, 1.0, 1.0, '', 'scored')")
    source._found.cache_clear()
    with pytest.raises(BusyError):
        source.summary()
