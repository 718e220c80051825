"""Files and folders of strangers, given to the real commands: nothing in them runs, nothing beyond them is written, and
whatever is wrong with them is one line and exit code 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from shoal.cli.main import main
from shoal.errors import UserError
from shoal.runs.folder import read_metrics

PAYLOAD = "from pathlib import Path\nPath(__file__).with_name('MARK').touch()\n"
"""A module that leaves a mark when it is imported."""
TASKS = """
[[{where}tasks.sources]]
name = "os:system"
parameters = {{ command = "touch MARK" }}

[[{where}tasks.sources]]
name = "payload:Task"
"""
REWARD = """
[[{where}rewards]]
kind = "function"
function = "payload:score"
guarded = false
"""
STUDY = 'title = "t"\nseeds = [1]\n\n[arms.a]\nrounds = 1\n'
COMMANDS = {
    "run --config": ["run", "--config", "file.toml", "--out", "out"],
    "run --resume": ["run", "--resume", "folder"],
    "join --config": ["join", "--config", "file.toml", "--out", "out", "--listen", "127.0.0.1:0"],
    "join --resume": ["join", "--resume", "folder", "--listen", "127.0.0.1:0"],
    "human --config": ["human", "--config", "file.toml", "--no-open", "--home", "home", "--listen", "127.0.0.1:0"],
    "doctor --config": ["doctor", "--config", "file.toml"],
    "lab run FILE": ["lab", "run", "study.toml"],
    "lab run DIR": ["lab", "run", "folder"],
}


def shoal(argv: list[str], here: Path) -> tuple[int, str]:
    """The exit code of the real program and what it says of an error."""
    done = subprocess.run(
        [sys.executable, "-m", "shoal", *argv],
        cwd=here,
        capture_output=True,
        text=True,
        timeout=120,
        stdin=subprocess.DEVNULL,
        env=os.environ | {"XDG_CONFIG_HOME": str(here / "home"), "HF_HUB_OFFLINE": "1"},
    )
    return done.returncode, done.stderr


def prepared(here: Path, hostile: str, study: str) -> None:
    """A stranger's files: settings, a run's folder, a study and its folder, and a module beside them."""
    (here / "payload.py").write_text(PAYLOAD)
    (here / "file.toml").write_text(hostile)
    (here / "study.toml").write_text(study)
    (here / "folder").mkdir()
    (here / "folder" / "config.toml").write_text(hostile)
    (here / "folder" / "study.toml").write_text(study)


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_or_imports_code_that_a_file_names(command: str, tmp_path: Path) -> None:
    prepared(tmp_path, TASKS.format(where="") + REWARD.format(where=""), STUDY + TASKS.format(where="arms.a."))
    code, said = shoal(COMMANDS[command], tmp_path)
    assert code == 2, said
    assert said.count("\n") == 1
    assert "names code that would run here ('os:system'): add --allow-code if you trust the file" in said
    assert not (tmp_path / "MARK").exists()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("where", ["a base of a study", "a reward of a study"])
def test_a_study_names_code_in_other_places_too(where: str, tmp_path: Path) -> None:
    inside = TASKS.format(where="bases.b.") if where == "a base of a study" else REWARD.format(where="arms.a.")
    prepared(tmp_path, "", STUDY + inside)
    code, said = shoal(COMMANDS["lab run FILE"], tmp_path)
    assert (code, said.count("\n")) == (2, 1), said
    assert "--allow-code" in said
    assert not (tmp_path / "MARK").exists()


def test_with_the_user_s_word_a_command_of_the_system_is_still_no_task(tmp_path: Path) -> None:
    prepared(tmp_path, TASKS.format(where=""), STUDY)
    code, said = shoal([*COMMANDS["human --config"], "--allow-code"], tmp_path)
    assert (code, said.count("\n")) == (2, 1), said
    assert "task 'os:system' is not a task" in said
    assert not (tmp_path / "MARK").exists()


PLANTS = ["symbolic link", "hard link", "pipe", "folder"]


def plant(kind: str, path: Path, victim: Path) -> None:
    match kind:
        case "symbolic link":
            path.symlink_to(victim)
        case "hard link":
            path.hardlink_to(victim)
        case "pipe":
            os.mkfifo(path)
        case _:
            path.mkdir()


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
@pytest.mark.parametrize("kind", PLANTS)
@pytest.mark.parametrize("way", ["--resume", "--out"])
def test_a_lock_that_is_something_else_empties_nothing(way: str, kind: str, tmp_path: Path) -> None:
    victim = tmp_path / "thesis.txt"
    victim.write_text("the only copy")
    folder = tmp_path / "folder"
    folder.mkdir()
    if way == "--resume":
        (folder / "config.toml").write_text("rounds = 1\n")
    plant(kind, folder / ".lock", victim)
    code, said = shoal(["run", way, "folder", "--rounds", "1", "--quiet"], tmp_path)
    assert (code, said.count("\n")) == (2, 1), said
    assert ".lock is not an ordinary file" in said
    assert victim.read_text() == "the only copy"


@pytest.mark.skipif(os.name == "nt", reason="needs links and pipes")
@pytest.mark.parametrize("name", ["metrics.jsonl", "rollouts.parquet", "checkpoints", "checkpoints/round-000001", "x"])
@pytest.mark.parametrize("kind", ["symbolic link", "pipe"])
def test_a_run_s_folder_leads_nowhere_else(
    name: str, kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "round-000001").mkdir(parents=True)
    (elsewhere / ".old.tmp").write_text("mine")
    folder = tmp_path / "folder"
    (folder / name).parent.mkdir(parents=True, exist_ok=True)
    (folder / "config.toml").write_text("rounds = 1\n")
    plant(kind, folder / name, elsewhere)
    assert main(["run", "--resume", str(folder), "--quiet"]) == 2
    assert "is neither a file nor a folder" in capsys.readouterr().err
    assert sorted(path.name for path in elsewhere.iterdir()) == [".old.tmp", "round-000001"]


def test_what_a_killed_run_left_half_written_may_be_a_link(tmp_path: Path) -> None:
    victim = tmp_path / "thesis.txt"
    victim.write_text("the only copy")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / ".config.toml.tmp").symlink_to(victim)
    argv = ["run", "--out", "out", "--rounds", "1", "--nodes", "1", "--suite", "none", "--quiet"]
    assert shoal(argv, tmp_path)[0] == 2
    assert victim.read_text() == "the only copy"


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"
FLOW = {"messages": 1, "bytes": 2, "overflow": 0}
STATUS = {
    **{"time": 1.0, "name": ESCAPES, "id": ESCAPES, "swarm": ESCAPES, "private": False, "links": 1},
    **{"peers": 1, "neighbours": [], "wanted": 8, "note": ESCAPES, "silo_since": None, "faults": 0},
    **{"received": FLOW, "sent": FLOW, "pool": {"rollouts": 1, "live": 1, "wanted": 4}},
    "admission": {
        "admitted": 3,
        "refused": {ESCAPES: 4},
        "peers": [{"name": ESCAPES, "admitted": 1, "last": 1.0, "muted": 1.0, "refused": {ESCAPES: 1}}],
    },
}
"""What `shoal status` shows, each text with orders to a terminal."""


def test_a_status_gives_the_terminal_no_orders(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "swarm.json").write_text(json.dumps(STATUS))
    for more in ([], ["--json"]):
        assert main(["status", str(tmp_path), *more]) == 0
        shown = capsys.readouterr().out
        assert "owned" in shown
        assert all(sign.isprintable() or sign == "\n" for sign in shown)


def _with(**changes: object) -> str:
    return json.dumps({**STATUS, **changes})


WRONG_STATUS = {
    "a list": "[]",
    "a number": "7",
    "not JSON": "{",
    "not UTF-8": b"\xff\xfe{}",
    "nested": "[" * 100_000,
    "nested inside": '{"name": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001,
    "a huge integer": _with(peers=1)[:-1] + ', "peers": ' + "9" * 100_000 + "}",
    "an integer beyond 64 bits": _with(peers=2**80),
    "an infinite time": _with(time=0)[:-1] + ', "time": 1e999}',
    "not a number": _with()[:-1] + ', "time": NaN}',
    "a text for a count": _with(peers="many"),
    "a missing part": json.dumps({"name": "x"}),
    "a wrong part": _with(admission=[]),
    "a wrong peer": _with(admission={"admitted": 1, "refused": {}, "peers": [7]}),
    "null": _with(received=None),
}


@pytest.mark.parametrize("kind", WRONG_STATUS)
def test_a_status_that_no_node_writes_is_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = WRONG_STATUS[kind]
    (tmp_path / "swarm.json").write_bytes(data if isinstance(data, bytes) else data.encode())
    assert_one_line(["status", str(tmp_path)], capsys)


WRONG_METRICS = {
    "no round": {"node": "a"},
    "a round in words": {"round": "one", "node": "a"},
    "a node with orders": {"round": 1, "node": ESCAPES},
    "a figure in words": {"round": 1, "node": "a", "gradient/peers": "x"},
    "a figure that is a list": {"round": 1, "node": "a", "eval/pass@1": [1]},
    "a huge figure": {"round": 1, "node": "a", "eval/pass@1": 10**400},
    "an endless figure": {"round": 1, "node": "a", "eval/pass@1": float("inf")},
    "a huge round": {"round": 10**400, "node": "a"},
}


@pytest.mark.parametrize("kind", WRONG_METRICS)
def test_metrics_that_no_run_writes_are_one_line(kind: str, tmp_path: Path) -> None:
    line = json.dumps(WRONG_METRICS[kind]).replace("Infinity", "1e999")
    (tmp_path / "metrics.jsonl").write_text(line + "\n")
    with pytest.raises(UserError) as error:
        read_metrics(tmp_path)
    assert str(error.value).isprintable()
    assert len(str(error.value)) < 2000


WRONG_TOML = {
    "deep arrays": "x = " + "[" * 10_000 + "]" * 10_000,
    "deep inline tables": "x = " + "{ a = " * 5_000 + "1" + " }" * 5_000,
    "deep keys": ".".join("a" * 900) + " = 1",
    "keys of thousands of parts": ".".join("a" * 100_000) + " = 1",
    "deep parameters": '[[tasks.sources]]\nname = "gcd"\nparameters.' + ".".join("a" * 500) + " = 1",
    "100,000 digits": "seed = " + "9" * 100_000,
    "100,000 hexadecimal digits": "seed = 0x" + "f" * 100_000,
    "beyond 64 bits": "rounds = 99999999999999999999",
    "an infinite number": "[policy]\ntemperature = 1e999",
    "not a number": "[learner]\nlearning_rate = nan",
    "orders to a terminal": 'seed = "\\u001b]0;owned\\u0007"',
    "orders in a model's name": '[policy]\nmodel = ["\\u001b[2J"]',
    "orders in a name": '"\\u001b[2J" = 1',
    "a long value": 'seed = "' + "x" * 100_000 + '"',
    "a section that is none": "network = 5",
    "a list for a section": "tasks = [1]",
    "too large": "# " + "x" * 2_000_000,
    "a wrong version": 'version = "' + "x" * 100_000 + '"',
}


@pytest.mark.parametrize("kind", WRONG_TOML)
def test_settings_that_nobody_writes_are_one_line(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file.toml").write_text(WRONG_TOML[kind])
    assert_one_line(["run", "--config", str(tmp_path / "file.toml"), "--out", str(tmp_path / "out")], capsys)


@pytest.mark.parametrize("kind", ["deep arrays", "100,000 digits", "a list for a section", "a wrong version"])
def test_so_it_is_for_a_person(kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file.toml").write_text(WRONG_TOML[kind])
    argv = ["human", "--config", str(tmp_path / "file.toml"), "--no-open", "--home", str(tmp_path / "home")]
    assert_one_line(argv, capsys)


@pytest.mark.skipif(os.name == "nt", reason="needs pipes")
@pytest.mark.parametrize("kind", ["pipe", "folder", "device", "gigabytes"])
def test_what_is_not_a_file_of_some_kilobytes_is_not_read(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("swarm.json", "file.toml"):
        path = tmp_path / name
        if kind == "device":
            path.symlink_to("/dev/zero")
        elif kind == "gigabytes":
            with path.open("wb") as file:
                file.truncate(1 << 36)
        else:
            plant(kind, path, path)
    assert_one_line(["status", str(tmp_path)], capsys)
    assert_one_line(["run", "--config", str(tmp_path / "file.toml"), "--out", str(tmp_path / "out")], capsys)


def assert_one_line(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert said.startswith("shoal: ")
    assert (said.count("\n"), said[-1]) == (1, "\n")
    assert said[:-1].isprintable()
    assert len(said) < 2100
