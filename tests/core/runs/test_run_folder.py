"""The folder of a run: what is in it, and that no kill and no full disk spoils it."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pandas
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.runs import tables
from shoal.runs.disk import ensure_space, write_atomically
from shoal.runs.folder import RunFolder, read_metrics
from shoal.runs.tables import ROLLOUTS


def completion(node: str = "ada", **other: Any) -> dict[str, Any]:
    row = {
        "node": node,
        "task": "chain_sum",
        "version": "1",
        "config": "c0ffee",
        "seed": 2**62,
        "index": 3,
        "prompt": "2 + 2 =",
        "completion": "4",
        "finish_reason": "stop",
        "reward": 1.0,
        "live": True,
    }
    return row | other


def state(text: str) -> Any:
    return lambda path: (path / "state").write_text(text)


def play(folder: RunFolder, rounds: range) -> None:
    """Rounds of two nodes, with a checkpoint after each."""
    for round in rounds:
        folder.log([{"round": round, "node": node, "reward/local": 0.5} for node in ("ada", "bob")])
        folder.save(ROLLOUTS, round, [completion(node) for node in ("ada", "bob")])
        folder.checkpoint(round, state(str(round)))


def rounds_of_rollouts(path: Path) -> list[int]:
    return sorted(pandas.read_parquet(path / "rollouts.parquet")["round"])


def test_links_that_trackers_make_do_not_keep_a_run_from_being_resumed(tmp_path: Path) -> None:
    run, mine = tmp_path / "run", tmp_path / "mine"
    mine.write_text("mine")
    with RunFolder.create(run, "seed = 1\n") as folder:
        play(folder, range(1, 2))
        (run / "trackers" / "wandb").mkdir(parents=True)
        (run / "trackers" / "wandb" / "latest-run").symlink_to(mine)
    RunFolder.open(run).close()
    assert not (run / "trackers" / "wandb" / "latest-run").is_symlink()
    assert mine.read_text() == "mine"
    shutil.rmtree(run / "trackers")
    (run / "trackers").symlink_to(tmp_path)
    with pytest.raises(UserError, match="trackers is neither a file nor a folder"):
        RunFolder.open(run)


def test_a_run_and_its_resumption(tmp_path: Path) -> None:
    run = tmp_path / "deep" / "run"
    with RunFolder.create(run, "seed = 1\n") as folder:
        folder.log([{"round": 0, "node": "ada", "eval/pass@1": 0.25}])
        play(folder, range(1, 4))
        folder.log([{"round": 4, "node": "ada"}])
        folder.save(ROLLOUTS, 4, [completion()])
    with RunFolder.open(run) as folder:
        found = folder.latest()
        assert found is not None
        assert (found[0], found[1].name, (found[1] / "state").read_text()) == (3, "round-000003", "3")
        folder.rewind(3)
        assert [row["round"] for row in read_metrics(folder.path)] == [0, 1, 1, 2, 2, 3, 3]
        play(folder, range(4, 6))
    assert [row["round"] for row in read_metrics(run)] == [0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert rounds_of_rollouts(run) == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    names = {"config.toml", "metrics.jsonl", "rollouts.parquet", "checkpoints", ".lock"}
    assert {path.name for path in run.iterdir()} == names
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["round-000004", "round-000005"]
    assert (run / "config.toml").read_text() == "seed = 1\n"


def test_rewind_cuts_a_part_in_two_and_removes_later_ones(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(tables, "PART_BYTES", 400)
    with RunFolder.create(tmp_path / "run", "") as folder:
        play(folder, range(1, 10))
        parts = sorted(path.name for path in (folder.path / "rollouts.parquet").iterdir())
        assert len(parts) > 2
        assert parts[0] == "from-round-000001.parquet"
        for last in (4, 4, 3, 0):
            folder.rewind(last)
            kept = [round for round in range(1, last + 1) for _ in "ab"]
            assert [row["round"] for row in read_metrics(folder.path)] == kept
            assert not kept or rounds_of_rollouts(folder.path) == kept
        assert not list((folder.path / "rollouts.parquet").iterdir())


def test_a_round_keeps_its_first_checkpoint(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.checkpoint(7, state("first"))
        folder.checkpoint(7, state("second"))
        assert (tmp_path / "run/checkpoints/round-000007/state").read_text() == "first"


def test_rollouts_open_in_pandas_and_datasets(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("HF_DATASETS_OFFLINE", "1")
    odd = "\ud800 \x00 \u202e 鯖"
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.save(ROLLOUTS, 1, [completion(), completion(completion=odd, reward=math.nan, node=odd)])
        folder.checkpoint(1, state(""))
        folder.save(ROLLOUTS, 2, [])
        folder.checkpoint(2, state(""))
    room = tmp_path / "run" / "rollouts.parquet"
    frame = pandas.read_parquet(room)
    assert list(frame.columns) == tables.SCHEMA.names
    assert frame["completion"].tolist() == ["4", "? \x00 \u202e 鯖"]
    assert frame["seed"].tolist() == [2**62] * 2
    datasets = pytest.importorskip("datasets")
    data = datasets.load_dataset(
        "parquet", data_files=str(room / "*.parquet"), split="train", cache_dir=str(tmp_path / "cache")
    )
    assert (len(data), data[0]["prompt"], data[1]["reward"]) == (2, "2 + 2 =", None)


most = 2**62
values = st.none() | st.booleans() | st.integers(-most, most) | st.floats()  # a run may diverge
names = st.text(st.characters(categories=["L", "M", "N", "P", "S"]))  # what can be printed
rows_of_rounds = st.lists(st.tuples(st.integers(0, 9), st.dictionaries(names, values, max_size=4)), max_size=8)


@settings(max_examples=60, deadline=None)
@given(rows_of_rounds, st.integers(0, 9), st.integers(0, 200))
def test_any_metrics_are_strict_json_and_survive_a_cut(rounds: Any, last: int, lost: int) -> None:
    def refuse(word: str) -> None:
        raise AssertionError(word)

    rows = [{**row, "round": round, "node": "鯖"} for round, row in rounds]
    with tempfile.TemporaryDirectory() as room, RunFolder.create(Path(room) / "run", "") as folder:
        for row in rows:
            folder.log([row])
        file = folder.path / "metrics.jsonl"
        whole = file.read_bytes() if rows else b""
        lines = [json.loads(line, parse_constant=refuse) for line in whole.decode().splitlines()]
        assert [line["round"] for line in lines] == [row["round"] for row in rows]
        assert read_metrics(folder.path) == lines
        cut = whole[: max(0, len(whole) - lost)]
        file.write_bytes(cut)
        folder.rewind(last)
        kept = [line for line in lines[: cut.count(b"\n")] if line["round"] <= last]
        assert read_metrics(folder.path) == kept
        folder.log([{"round": last, "node": "ada"}])
        assert read_metrics(folder.path) == [*kept, {"round": last, "node": "ada"}]


def test_create_refuses_what_is_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("mine")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with RunFolder.create(tmp_path / "run", "") as run:
        run.log([{"round": 1, "node": "ada"}])
    for name, words in (("file", "is a file"), ("full", "is not empty"), ("run", "--resume")):
        with pytest.raises(UserError, match=f"(?s){words}.*--out"):
            RunFolder.create(tmp_path / name, "")
    with pytest.raises(UserError, match="cannot write"):
        RunFolder.create(tmp_path / "file" / "below", "")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_create_takes_an_empty_folder_and_what_a_kill_left(tmp_path: Path) -> None:
    (tmp_path / ".lock").touch()
    (tmp_path / ".config.toml.tmp").touch()
    RunFolder.create(tmp_path, "seed = 2").close()
    assert (tmp_path / "config.toml").read_text() == "seed = 2"
    with RunFolder.create(tmp_path, "seed = 3"):  # killed before its first round: it holds no run yet
        assert (tmp_path / "config.toml").read_text() == "seed = 3"


@pytest.mark.parametrize("before", [True, False])
def test_create_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: Any, before: bool) -> None:
    run = tmp_path / "run"
    if before:
        run.mkdir()

    def full(*_: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(UserError, match="the disk is full"):
        RunFolder.create(run, "")
    assert run.exists() == before
    assert not before or not list(run.iterdir())


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_create_without_permission(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    with pytest.raises(UserError, match="Permission denied"):
        RunFolder.create(tmp_path / "run", "")


def test_open_refuses_what_is_not_a_run(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not the folder of a run"):
        RunFolder.open(tmp_path)


def test_a_run_killed_before_its_first_checkpoint_begins_again(tmp_path: Path) -> None:
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.log([{"round": 0, "node": "ada"}])
        (folder.path / "checkpoints" / ".round-000000.tmp").mkdir(parents=True)
    with RunFolder.open(tmp_path / "run") as folder:
        assert folder.latest() is None
        folder.rewind(-1)
        assert read_metrics(folder.path) == []


@pytest.mark.parametrize("rounds", [0, 2])
def test_an_error_removes_a_run_without_rounds_and_no_other(tmp_path: Path, rounds: int) -> None:
    run = tmp_path / "run"
    with contextlib.suppress(KeyboardInterrupt), RunFolder.create(run, "") as folder:
        for round in range(rounds + 1):
            folder.log([{"round": round, "node": "ada"}])
        raise KeyboardInterrupt
    assert run.exists() == bool(rounds)
    assert not rounds or len(read_metrics(run)) == rounds + 1


def child(code: str, *arguments: object) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


@pytest.mark.skipif(os.name == "nt", reason="folders are not locked there")
def test_two_processes_do_not_write_one_folder(tmp_path: Path) -> None:
    code = "import sys, pathlib, shoal.runs.folder as module; module.RunFolder.open(pathlib.Path(sys.argv[1]))"
    with RunFolder.create(tmp_path / "run", "") as folder:
        folder.checkpoint(1, state(""))
        second = child(code, folder.path)
        assert "another process is writing" in second.communicate()[0]
    third = child(code, folder.path)
    assert (third.communicate()[0], third.returncode) == ("", 0)


def test_a_save_that_fails_keeps_the_previous_checkpoint(tmp_path: Path) -> None:
    def fail(error: Exception) -> Any:
        def save(path: Path) -> None:
            (path / "half").write_text("half")
            raise error

        return save

    with RunFolder.create(tmp_path / "run", "") as folder:
        with pytest.raises(UserError, match="start again"):
            folder.checkpoint(1, fail(OSError(errno.EIO, "Input/output error")))
        play(folder, range(1, 3))
        with pytest.raises(UserError, match="is full; free some space, then --resume goes on after round 2"):
            folder.checkpoint(3, fail(OSError(errno.ENOSPC, "No space left on device")))
        with pytest.raises(ZeroDivisionError):  # a fault of the program is not dressed up as the user's
            folder.checkpoint(3, fail(ZeroDivisionError()))
        assert [path.name for path in (folder.path / "checkpoints").iterdir()] == ["round-000002"]


@pytest.mark.skipif(os.name == "nt", reason="needs RLIMIT_FSIZE")
def test_a_disk_that_ends_in_the_middle_of_a_file(tmp_path: Path) -> None:
    code = """
import resource, signal, sys
from pathlib import Path
from shoal.errors import UserError
from shoal.runs.folder import RunFolder
from shoal.runs.tables import ROLLOUTS
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
with RunFolder.create(Path(sys.argv[1]), "") as folder:
    folder.log([{"round": 1, "node": "ada"}])
    folder.checkpoint(1, lambda path: (path / "state").write_bytes(b"x" * 100))
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    try:
        folder.checkpoint(2, lambda path: (path / "state").write_bytes(b"x" * 2000))
    except UserError as error:
        print(error)
    try:
        folder.log([{"round": 2, "node": "x" * 2000}])
    except UserError as error:
        print(error)
"""
    process = child(code, tmp_path / "run")
    lines = process.communicate()[0].splitlines()
    assert process.returncode == 0, lines
    assert "round-000002: File too large; --resume goes on after round 1" in lines[0]
    assert "metrics.jsonl: File too large" in lines[1]
    with RunFolder.open(tmp_path / "run") as folder:
        folder.rewind(1)
        assert read_metrics(folder.path) == [{"round": 1, "node": "ada"}]
    assert [path.name for path in (tmp_path / "run" / "checkpoints").iterdir()] == ["round-000001"]


def test_a_full_disk(tmp_path: Path) -> None:
    """A real one, where this may be mounted."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)]
    try:
        mounted = subprocess.run(mount, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("cannot mount a small disk")

    def careless(path: Path) -> None:  # as torch does
        try:
            (path / "state").write_bytes(b"x" * (4 << 20))
        except OSError:
            raise RuntimeError("unexpected pos 64 vs 0") from None

    try:
        with RunFolder.create(disk / "run", "") as folder:
            play(folder, range(1, 3))
            with pytest.raises(UserError, match="the disk is full; free some space, then --resume goes on after"):
                folder.checkpoint(3, careless)
            folder.save(ROLLOUTS, 3, [completion(prompt=os.urandom(2 << 20).hex())])
            with pytest.raises(UserError, match="the disk is full; free some space"):
                folder.checkpoint(3, state("3"))
            folder.rewind(2)
            play(folder, range(3, 5))
            assert rounds_of_rollouts(folder.path) == [1, 1, 2, 2, 3, 3, 4, 4]
            with pytest.raises(UserError, match="GB free"):
                ensure_space(folder.path / "not" / "yet", 10 << 20)
            ensure_space(folder.path / "not" / "yet", 1 << 10)
    finally:
        subprocess.run(["umount", "-l", str(disk)], check=True)


PLAYER = """
import os, random, sys
from pathlib import Path
import shoal.runs.tables as module
from shoal.runs.folder import RunFolder
from shoal.runs.tables import ROLLOUTS
module.PART_BYTES = 20_000
row = dict(node="ada", task="t", version="1", config="c", seed=1, index=1, prompt="q", finish_reason="stop",
           reward=0.0, live=False)
path = Path(sys.argv[1])
def save(round):
    def write(room):
        payload = os.urandom(random.randrange(200_000))
        (room / "size").write_text(f"{round} {len(payload)}")
        (room / "weights").mkdir()
        (room / "weights" / "payload").write_bytes(payload)
    return write
if path.exists():
    folder = RunFolder.open(path)
    start = folder.latest()[0]
    folder.rewind(start)
else:
    folder = RunFolder.create(path, "")
    start = 0
    folder.checkpoint(0, save(0))
print("ready", flush=True)
for round in range(start + 1, 1_000_000):
    folder.log([{"round": round, "node": node, "eval/by": "y" * random.randrange(9000)} for node in "ab"])
    folder.save(ROLLOUTS, round, [row | {"completion": os.urandom(50).hex()} for _ in range(3)])
    if round % 2 == 0:
        folder.checkpoint(round, save(round))
"""


def assert_as_after(folder: RunFolder, round: int, rollouts: int) -> None:
    """That metrics and rollouts (two and `rollouts` in each round) end with `round`, with no leftovers."""
    assert [row["round"] for row in read_metrics(folder.path)] == [past for past in range(1, round + 1) for _ in "ab"]
    expected = [past for past in range(1, round + 1) for _ in range(rollouts)]
    assert not expected or rounds_of_rollouts(folder.path) == expected
    assert not list(folder.path.rglob(".*.tmp"))


@pytest.mark.slow
@pytest.mark.skipif(os.name == "nt", reason="needs SIGKILL")
def test_kills_at_random_instants(tmp_path: Path) -> None:
    run, last, kills = tmp_path / "run", 0, 0
    while kills < 10 or last < 4:
        process = child(PLAYER, run)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep((0.01 + 0.037 * kills % 0.3) * (1 + kills / 10))  # later and later, for a slow disk
        process.send_signal(signal.SIGKILL)
        kills += 1
        assert process.communicate()[0] == ""
        with RunFolder.open(run) as folder:
            found = folder.latest()
            assert found is not None
            round, checkpoint = found
            assert round >= last
            last = round
            folder.rewind(round)
            assert_as_after(folder, round, rollouts=3)
            name, size = (checkpoint / "size").read_text().split()
            assert int(name) == round
            assert (checkpoint / "weights" / "payload").stat().st_size == int(size)


class Killed(BaseException):
    """The process has ended: from here on nothing reaches the disk."""


STEPS = [
    *((Path, name) for name in ("mkdir", "rename", "replace", "unlink", "open", "write_bytes", "write_text")),
    (os, "fsync"),
    (shutil, "rmtree"),
]


def kill_at(step: int, monkeypatch: Any) -> None:
    """End the process, as it were, at the step `step` from now that changes the disk."""
    count = 0

    def wrap(action: Any) -> Any:
        def act(*arguments: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count < step:
                return action(*arguments, **options)
            if count == step and action.__name__.startswith("write_"):
                action(arguments[0], arguments[1][: len(arguments[1]) // 2])
            raise Killed

        return act

    for owner, name in STEPS:
        monkeypatch.setattr(owner, name, wrap(getattr(owner, name)))


def test_kills_at_every_step(tmp_path: Path, monkeypatch: Any) -> None:
    """Of a round with a checkpoint, and of the rewind after it."""
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow, and a process that ends does not need it
    step, killed, outcomes = 0, True, set()
    while killed:
        step += 1
        run = tmp_path / str(step)
        with RunFolder.create(run, "") as folder:
            play(folder, range(1, 4))
            with monkeypatch.context() as patch:
                kill_at(step, patch)
                try:
                    play(folder, range(4, 5))
                    folder.rewind(4)
                    killed = False
                except Killed:
                    pass
        with RunFolder.open(run) as folder:
            found = folder.latest()
            assert found is not None
            assert (found[1] / "state").read_text() == str(found[0])
            outcomes.add(found[0])
            for rewind_step in range(1, 6):
                with monkeypatch.context() as patch:
                    kill_at(rewind_step, patch)
                    with contextlib.suppress(Killed):
                        folder.rewind(found[0])
            folder.rewind(found[0])
            assert_as_after(folder, found[0], rollouts=2)
            play(folder, range(found[0] + 1, 6))
            assert_as_after(folder, 5, rollouts=2)
    assert step > 15
    assert outcomes == {3, 4}


def test_write_atomically_replaces_or_leaves(tmp_path: Path, monkeypatch: Any) -> None:
    write_atomically(tmp_path / "file", b"old")

    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match="the disk is full"):
        write_atomically(tmp_path / "file", b"new")
    assert (tmp_path / "file").read_bytes() == b"old"
    assert len(list(tmp_path.iterdir())) == 1
