"""Whatever lies in a folder of runs, the window shows the others, and says what cannot be read."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from test_watch_server import ask
from watched import HOSTILE, metric, small_run, write_run

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from shoal.errors import UserError
from shoal.runs.tables import ROLLOUTS
from shoal.sandbox.process import GuardedProcess
from shoal_web.serving.guard import Access
from shoal_web.watch import metrics, sources, tables
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.reader import READERS
from shoal_web.watch.server import make_app
from shoal_web.watch.source import BusyError, MissingError, RolloutQuery, RowQuery
from shoal_web.watch.sources import Sources
from shoal_web.watch.tables import Tables

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs the files of a Unix")
PART = f"{ROLLOUTS}/from-round-000001.parquet"
OTHER = "from-round-000005.parquet"


def pipe(path: Path) -> None:
    os.mkfifo(path)


def link(path: Path) -> None:
    outside = path.parent / f"outside-{path.name}"
    outside.write_text(json.dumps(metric(1, "outside")) + "\n")
    path.symlink_to(outside)


def bound(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # addresses of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def endless(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(1 << 40)


STRANGE: dict[str, tuple[Callable[[Path], Any], str]] = {
    "pipe": (pipe, "not an ordinary file"),
    "link": (link, "not an ordinary file"),
    "folder": (Path.mkdir, "not an ordinary file"),
    "socket": (bound, "not an ordinary file"),
    "endless": (endless, "too large: its end is shown"),
}


def replace(path: Path, kind: str) -> None:
    path.unlink(missing_ok=True)
    STRANGE[kind][0](path)


@pytest.mark.slow
@pytest.mark.parametrize("kind", STRANGE)
@pytest.mark.timeout(60)
def test_what_is_no_regular_file_is_named_and_stops_nothing(tmp_path: Path, kind: str) -> None:
    small_run(tmp_path / "honest")
    eve = small_run(tmp_path / "eve")
    for name in ("metrics.jsonl", "config.toml", "swarm.json", PART):
        replace(eve / name, kind)
    with closing(Sources(folders=[tmp_path])) as runs:
        page = make_app(runs, Access())
        ids = {run["title"]: run["id"] for run in ask(page, "/api/runs").json["runs"]}
        assert ids.keys() == {"honest", "eve"}
        said = ask(page, f"/api/runs/{ids['eve']}/summary").json
        assert STRANGE[kind][1] in said["trouble"]
        assert "from-round-000001.parquet" in said["trouble"]
        assert said["completions"] == 16  # the other parts are shown
        assert ask(page, f"/api/runs/{ids['eve']}/rollouts").json["rollouts"]
        runs._next = 0.0
        runs.look()
        assert ask(page, f"/api/runs/{ids['honest']}/summary").json["completions"] == 24


def part(**columns: Any) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        whole = pq.read_table(path)
        for name, values in columns.items():
            whole = whole.drop_columns(name) if values is None else whole.set_column(0, name, values)
        pq.write_table(whole, path)

    return write


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-100])


def large_footer(path: Path) -> None:
    path.write_bytes(b"PAR1" + bytes(64) + (1 << 30).to_bytes(4, "little") + b"PAR1")


def bytes_of_nothing(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(4)
        file.write(os.urandom(400))


def too_many_groups(path: Path) -> None:
    pq.write_table(pq.read_table(path), path, row_group_size=1)


WRONG: dict[str, tuple[Callable[[Path], None], str]] = {
    "cut short": (cut, "it is no Parquet file"),
    "a footer of a gigabyte": (large_footer, "its footer is too large"),
    "no texts": (part(completion=None), "its column completion"),
    "nested texts": (part(round=pa.array([[["x"]]] * 8)), "its column round"),
    "too many groups": (too_many_groups, "it has 8 groups"),
}


@pytest.mark.slow
@pytest.mark.parametrize("wrong", WRONG)
def test_a_part_that_no_run_writes_is_left_out(tmp_path: Path, wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "GROUPS", 4)
    change, reason = WRONG[wrong]
    run = small_run(tmp_path / "run")
    change(run / PART)
    with closing(FolderSource(run, "run")) as source:
        summary = source.summary()
        assert f"cannot be read: {PART} ({reason}" in summary["trouble"]
        assert summary["completions"] == 16
        assert sum(each["completions"] for each in source.rollouts(RolloutQuery())["rollouts"]) == 16
        (run / PART).write_bytes((run / ROLLOUTS / OTHER).read_bytes())  # it was mended
        assert source.summary()["trouble"] == ""
        assert source.summary()["completions"] == 24


def test_any_bytes_where_texts_should_be_are_an_answer(tmp_path: Path) -> None:
    run = small_run(tmp_path / "run")
    bytes_of_nothing(run / PART)
    with closing(FolderSource(run, "run")) as source:
        for _ in range(2):
            source.summary()
            with pytest.raises((BusyError, MissingError)):
                source.rollout(RowQuery(part=1, row=0))


@pytest.mark.slow
def test_a_reader_that_died_is_started_again(tmp_path: Path) -> None:
    with closing(Tables(small_run(tmp_path / "run"))) as found:
        assert found.rows("SELECT 1 AS one") == [{"one": 1}]
        assert found.reader._process._pid is not None
        os.kill(found.reader._process._pid, signal.SIGKILL)
        with pytest.raises(BusyError, match="too much memory"):
            found.rows("SELECT 1 AS one")
        assert found.rows("SELECT 2 AS two") == [{"two": 2}]


def fail_to_start(process: GuardedProcess, seconds: float, wall: float) -> bytes:
    raise UserError("no memory")


def take_too_long(process: GuardedProcess, seconds: float, wall: float) -> bytes:
    raise TimeoutError


@pytest.mark.slow
@pytest.mark.parametrize("fails", [fail_to_start, take_too_long])
def test_a_busy_reader_is_no_fault_of_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: Callable[..., bytes]
) -> None:
    with closing(FolderSource(small_run(tmp_path / "run"), "run")) as source:
        with monkeypatch.context() as patch:
            patch.setattr(GuardedProcess, "receive", fails)
            summary = source.summary()
            assert summary["completions"] == 0
            assert "cannot be" in summary["trouble"]
        summary = source.summary()
        assert (summary["completions"], summary["trouble"]) == (24, "")


@pytest.mark.slow
def test_what_is_closed_is_checked_again(tmp_path: Path) -> None:
    with closing(Tables(small_run(tmp_path / "run"))) as found:
        assert found.parts(ROLLOUTS)
        found.close()
        assert not found._fault.cache_info().currsize
        assert found.parts(ROLLOUTS)


@pytest.mark.slow
def test_there_are_few_readers_and_each_has_little_memory(tmp_path: Path) -> None:
    many = [Tables(small_run(tmp_path / f"run-{at}")) for at in range(len(READERS) + 2)]
    for each in many:
        assert len(each.rows("FROM range(3)")) == 3
    assert {each.reader for each in many} <= set(READERS)
    with pytest.raises(BusyError, match="emory"):
        many[-1].rows("SELECT list(repeat('x', 1000) || range) FROM range(10_000_000)")
    with pytest.raises(BusyError, match="too much text"):
        many[-1].rows("SELECT repeat('x', 1000) AS x FROM range(100_000)")
    for each in many:
        each.close()


@pytest.mark.slow
def test_names_of_folders_are_shown_and_are_not_obeyed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    names = [os.fsencode(text.replace("/", "|").replace("\x00", "")[:60]) for text in HOSTILE]
    for name in (*names, b"\xff\xfe", b"ru'n[1]*?"):
        (tmp_path / "made").mkdir(exist_ok=True)
        small_run(tmp_path / "small") if not (tmp_path / "small").exists() else None
        os.rename(tmp_path / "small", os.path.join(os.fsencode(tmp_path / "made"), name))
    with closing(Sources(folders=[tmp_path / "made"])) as runs:
        page = make_app(runs, Access())
        shown = ask(page, "/api/runs").json["runs"]
        assert len(shown) == len(set(names)) + 2
        assert all(title["title"].isprintable() for title in shown)
        for run in shown[-2:]:
            assert ask(page, f"/api/runs/{run['id']}/summary").json["completions"] == 24


@pytest.fixture
def crowd(tmp_path: Path) -> Path:
    for at in range(40):
        (tmp_path / "a crowd" / f"{at:05d}").mkdir(parents=True)
        (tmp_path / "a crowd" / f"{at:05d}" / "config.toml").touch()
    small_run(tmp_path / "zebra")
    return tmp_path


def test_a_folder_full_of_runs_hides_none_beside_it(crowd: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sources, "RUNS", 10)
    with closing(Sources(folders=[crowd])) as runs:
        titles = [source.title for source in runs.all()]
        assert len(titles) == 10
        assert "zebra" in titles
        (crowd / "zebra").rename(crowd / "zebu")
        runs._next = 0.0
        runs.look()
        assert {source.title for source in runs.all()} & {"zebra", "zebu"} == {"zebu"}
    monkeypatch.setattr(sources, "LOOKED", 12)
    assert sum(1 for _ in sources.runs_in(crowd)) <= 12


def test_figures_of_any_kind_leave_the_page_standing(tmp_path: Path) -> None:
    odd = [1e400, -1e400, 10**30, 10**400, -1, 2**60, 1e299, True, None, "x", [[]], {}]
    run = write_run(tmp_path / "run", [metric(1, "ada")])
    with (run / "metrics.jsonl").open("a") as file:
        for value in odd:
            file.write(json.dumps(metric(2, "ada") | {"round": value, "reward/local": value, "x": value}) + "\n")
            file.write(json.dumps(metric(2, "ada") | {"reward/local": value, "x": value}) + "\n")
        file.write('{"round": 2, "node": "ada", "x": NaN}\n' + "[" * 100_000 + "\n" + '{"a":' * 5000 + "\n")
        file.write("9" * 900_000 + "\n" + '{"round": 3, "node": "' + "n" * 900_000 + '"}\n')
    (run / "config.toml").write_text('[experiment]\nadversaries = "inf"\n')
    (run / "swarm.json").write_text(json.dumps({"time": 10**200, "links": 1e308, "admission": [1], "peers": 10**30}))
    with closing(Sources(folders=[run])) as runs:
        page = make_app(runs, Access())
        [one] = ask(page, "/api/runs").json["runs"]
        summary = ask(page, f"/api/runs/{one['id']}/summary")
        assert summary.status == 200
        assert summary.json["rounds"] == 3
        assert ask(page, f"/api/runs/{one['id']}/curve?metric=x").status == 200


def test_of_a_long_file_the_end_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "BYTES", 10_000)
    run = write_run(tmp_path / "run", [metric(round, "ada") for round in range(1000)])
    with closing(FolderSource(run, "run")) as source:
        summary = source.summary()
        assert "too large" in summary["trouble"]
        assert summary["rounds"] == 999
        assert 50 < len(source._metrics.nodes["ada"].known("reward/local")[0]) < 200


@pytest.mark.slow
def test_searches_go_on_after_a_new_reader(tmp_path: Path) -> None:
    with closing(FolderSource(small_run(tmp_path / "run"), "run")) as source:
        first = source.rollouts(RolloutQuery(text="says", limit=1))
        source._tables.close()
        assert first["next"]
        assert source.rollouts(RolloutQuery(text="says", after=first["next"]))["rollouts"]
