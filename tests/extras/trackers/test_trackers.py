"""`--report-to`: what trackers get, read back by their own readers, and what happens if they fail."""

from __future__ import annotations

import json
import math
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import RIGHT, WRONG, question, rollout
from support.figures import figures

from shoal.cli.main import main
from shoal.config.load import config_from_keywords
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.node import RoundResult
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Scored
from shoal.runs.trackers import makers_of, started
from shoal_extras.trackers.kinds import Wandb
from shoal_extras.trackers.tracker import (
    LONGEST,
    MOST,
    WAITING,
    Memory,
    Tracker,
    remembered,
    tracked_config,
    tracked_metrics,
    tracked_name,
    tracked_rollouts,
)

HOSTILE = "<script>alert(1)</script>\n# title **bold** [a](javascript:b)\x1b[2J\u202e\u2028\rend"
SHOWN = "<script>alert(1)</script>\n# title **bold** [a](javascript:b)?[2J???end"


def result(answer: str = RIGHT, rollouts: int = 2) -> RoundResult:
    """A round of a node that also learned from another."""
    own = [rollout(question(number), [WRONG, RIGHT]) for number in range(rollouts)]
    local = [Scored(each, question(number), (0.0, 1.0)) for number, each in enumerate(own)]
    of_others = msgspec.structs.replace(own[0], node="eve", completions=(Completion.of(answer),))
    foreign = Scored(of_others, question(9), (1.0,), from_peer=True)
    return RoundResult(local, [*local, foreign], UpdateResult({}, {}))


def rows(round: int, *nodes: str, **figures: Any) -> list[dict[str, Any]]:
    return [
        {"node": node, "round": round, "time": 1.0, "reward/local": 0.25 * (n + 1), **figures}
        for n, node in enumerate(nodes)
    ]


def test_one_node_has_the_names_of_its_metrics() -> None:
    [row] = rows(3, "ada", **{"eval/pass@1": 0.5, "eval/by": "judge", "loss": math.nan, "reward/peers": None})
    assert tracked_metrics([row]) == {"reward/local": 0.25, "eval/pass_at_1": 0.5}


def test_several_nodes_are_kept_apart_below_their_mean() -> None:
    found = tracked_metrics(rows(3, "node-1", "node-2"))
    assert found == {"reward/local": 0.375, "node-1/reward/local": 0.25, "node-2/reward/local": 0.5}


def test_a_name_is_one_that_all_trackers_take() -> None:
    assert tracked_name("eval/pass@1/my tasks:Larger") == "eval/pass_at_1/my_tasks_Larger"


def test_rollouts_are_few_and_plain_text() -> None:
    found = tracked_rollouts([("ada", result(HOSTILE, rollouts=20)), ("bob", result("x" * 9999))])
    assert len(found) == MOST
    assert {row["node"] for row in found} == {"ada", "bob"}
    assert [row["completion"] for row in found if row["maker"] == "eve"] == [SHOWN, "x" * (LONGEST - 1) + "…"]


def test_a_round_without_answers_has_no_rollouts() -> None:
    assert tracked_rollouts([("ada", RoundResult([], [], UpdateResult({}, {})))]) == []


def test_settings_are_reported_without_addresses_and_passwords() -> None:
    config = Config.model_validate(
        {
            "policy": {"model": ["http://me:secret@host/v1"]},
            "network": {"connect": ["tls/relay:1"], "secret_file": "s", "name": "reef"},
            "evaluation": {"judges": ["http://judge#KEY"]},
        }
    )
    found = tracked_config(config)
    assert found["learner.loss_type"] == config.learner.loss_type
    assert found["network.name"] == "reef"
    assert found["policy.model"] == '["http://host/v1"]'
    assert not any(word in json.dumps(found) for word in ("secret", "relay", "judge", "KEY"))


def test_a_tracker_that_is_not_installed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match="--report-to wandb: it is not installed: pip install wandb"):
        makers_of(Config(report_to=["wandb"]))


def test_a_tracker_that_is_not_installed_is_said_before_anybody_is_contacted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with socket.create_server(("127.0.0.1", 0)) as relay:
        relay.setblocking(False)
        where = f"127.0.0.1:{relay.getsockname()[1]}"
        words = ["join", where, "--swarm", "lagoon", "--model", "nobody/has-it", "--report-to", "wandb"]
        assert main(words) == 2
        with pytest.raises(BlockingIOError):
            relay.accept()
    assert capsys.readouterr().err == "shoal: --report-to wandb: it is not installed: pip install wandb\n"


@pytest.mark.parametrize("text", ["[]", '{"id": "../../x"}', '{"id": "a", "round": "b"}', "{" * 9999])
def test_a_strangers_note_of_a_trackers_run_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "wandb.json").write_text(text)
    with pytest.raises(UserError, match="remove it to begin a new run there"):
        remembered(tmp_path / "wandb.json")
    assert remembered(tmp_path / "absent.json") == Memory()


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tracker may take its time on a busy machine."""
    monkeypatch.setattr("shoal.runs.trackers.LIMIT", 250.0)


FAKE = """
import time
from types import SimpleNamespace

Settings = Table = SimpleNamespace

class Run:
    url, dir = "https://example.org/run", "."
    def define_metric(self, *names, **options): pass
    def finish(self): {finish}
    def log(self, values, step=None):
        print("noise", flush=True)
        {log}

def init(**options):
    {init}
    return Run()
"""


def fake_wandb(
    folder: Path, monkeypatch: pytest.MonkeyPatch, init: str = "pass", log: str = "pass", finish: str = "pass"
) -> None:
    """Makes a tracker that does as it is told when a run begins and when a round comes."""
    text = FAKE.replace("{init}", init).replace("{log}", log).replace("{finish}", finish)
    (folder / "wandb.py").write_text(text)
    spec = spec_from_file_location("wandb", folder / "wandb.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "wandb", module)


def wandb(folder: Path) -> Tracker:
    return Wandb("wandb", Config(), folder, ["ada"])


def test_a_tracker_that_raises_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb(tmp_path, monkeypatch, log="raise ConnectionError('the server is\\nasleep')")
    tracker = wandb(tmp_path)
    tracker.report(1, rows(1, "ada"))
    tracker.report(2, rows(2, "ada"))
    tracker.end()
    tracker.wait(200)
    assert tracker.trouble == "wandb did not take 2 rounds: ConnectionError: the server is asleep"
    assert tracker.news() == "https://example.org/run"
    assert tracker.news() == ""


def test_a_tracker_that_cannot_begin_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb(tmp_path, monkeypatch, init="raise PermissionError('no key')")
    tracker = wandb(tmp_path)
    tracker.wait(200)
    assert tracker.trouble == "the run goes on without wandb: PermissionError: no key"


def test_a_tracker_that_hangs_keeps_nobody_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_wandb(tmp_path, monkeypatch, init="time.sleep(1000)")
    tracker = wandb(tmp_path)
    report = rows(1, "ada")
    for round in range(WAITING + 2):
        tracker.report(round, report, [("ada", result("x" * 9999))])
    assert tracker.trouble == "wandb is slower than the run: 2 rounds left out"
    tracker.end()
    tracker.wait(0.1)
    tracker.wait(1000)  # it waits once
    assert tracker.trouble == "the run goes on without wandb: it did not take the last rounds in time"


Read = dict[str, list[tuple[int, float]]]


def read_tensorboard(run: Path, memory: Memory) -> tuple[Read, str]:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(str(run / "trackers/tensorboard"))
    found.Reload()
    texts = [event.tensor_proto.string_val[0].decode() for event in found.Tensors("rollouts/2/text_summary")]
    names = found.Tags()["scalars"]
    return {name: [(event.step, event.value) for event in found.Scalars(name)] for name in names}, texts[0]


def read_trackio(run: Path, memory: Memory) -> tuple[Read, str]:
    """In a process of its own: trackio looks for its folder when it is imported, which others may have done already."""
    code = (
        "import json, sys; from trackio.sqlite_storage import SQLiteStorage as s; "
        "print(json.dumps([s.get_logs('shoal', sys.argv[1]), s.get_traces('shoal', sys.argv[1])]))"
    )
    said = subprocess.check_output([sys.executable, "-c", code, memory.id], text=True)
    logs, traces = json.loads(said.splitlines()[-1])
    found: Read = {}
    for log in logs:
        for name, value in log.items():
            if isinstance(value, int | float):
                found.setdefault(name, []).append((log["step"], value))
    return found, next(m["content"] for t in traces for m in t["messages"] if "script" in m["content"])


def read_wandb(run: Path, memory: Memory) -> tuple[Read, str]:
    import wandb
    from wandb.proto.wandb_internal_pb2 import Record

    wandb.teardown()  # writes what it holds
    found: Read = {}
    for file in sorted((run / "trackers/wandb").glob("offline-run-*/run-*.wandb")):
        for data in leveldb_records(file.read_bytes()[7:]):
            items = {
                item.nested_key[0] if item.nested_key else item.key: json.loads(item.value_json)
                for item in Record.FromString(data).history.item
            }
            for name, value in items.items():
                if isinstance(value, int | float) and "round" in items:
                    found.setdefault(name, []).append((items["round"], value))
    [table, *_] = sorted((run / "trackers/wandb").glob("offline-run-*/files/media/table/*.json"))
    return found, json.loads(table.read_text())["data"][1][4]


def leveldb_records(data: bytes) -> Iterator[bytes]:
    """The records of a log in LevelDB's format, in which wandb writes its files, behind a head of 7 bytes."""
    at, record = 7, b""
    data = bytes(7) + data
    while at + 7 <= len(data):
        if at % 32768 > 32768 - 7:
            at += 32768 - at % 32768
            continue
        length, kind = struct.unpack_from("<HB", data, at + 4)
        record += data[at + 7 : at + 7 + length]
        at += 7 + length
        if kind in (1, 4):
            yield record
            record = b""


READERS = {"tensorboard": read_tensorboard, "trackio": read_trackio, "wandb": read_wandb}


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(READERS))
def test_what_a_tracker_got_is_read_back(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A resumed run makes a round again, which is reported once, and goes on in the same run of the tracker."""
    if find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("TRACKIO_DIR", str(tmp_path / "trackio"))
    for module in [each for each in sys.modules if each.split(".")[0] == "trackio"]:
        monkeypatch.delitem(sys.modules, module)  # it reads that variable when it is imported, which TRL does
    monkeypatch.chdir(tmp_path)
    run = tmp_path / "one"
    run.mkdir()
    config = config_from_keywords({"report_to": name})
    for rounds in ((0, 1, 2), (2, 3)):
        with started(config, run, ["node-1", "node-2"]) as trackers:
            [tracker] = trackers.values()
            for round in rounds:
                results = [("node-1", result(HOSTILE))] if round else []
                tracker.report(round, rows(round, "node-1", "node-2"), results, late=False)
            tracker.report(rounds[-1], [{"node": "node-1", "eval/pass@1": 0.5}], (), late=True)
        assert tracker.trouble == ""
        assert tracker.news()
    memory = remembered(run / "trackers" / f"{name}.json")
    assert memory.round == 3
    found, text = READERS[name](run, memory)
    expected = [(round, 0.375) for round in range(4)]
    assert found["reward/local"] == expected
    assert found["node-2/reward/local"] == [(round, 0.5) for round in range(4)]
    assert found["eval/pass_at_1"] == [(2, 0.5), (3, 0.5)]
    shown = "\n".join(f"    {line}" for line in SHOWN.split("\n")) if name == "tensorboard" else SHOWN
    assert shown in text


@pytest.mark.slow
def test_training_with_trackers_gives_the_same_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if one is missing and one hangs; the run's folder says so."""
    from shoal.runs.folder import read_warnings
    from shoal.runs.session import execute

    fake_wandb(tmp_path, monkeypatch, log="raise OSError('no room')")
    settings = {"nodes": 2, "rounds": 2, "local": 2, "peers": 2, "workers": 0, "eval_questions": 1, "threads": 1}
    outcomes = [
        execute(config_from_keywords(settings | {"report_to": names}).resolved(), tmp_path / f"run-{len(names)}")
        for names in ([], ["wandb"])
    ]
    assert figures(outcomes[0].folder) == figures(outcomes[1].folder)
    [warning] = read_warnings(outcomes[1].folder)
    assert warning == "wandb did not take 3 rounds: OSError: no room"
    assert outcomes[1].warnings == (warning,)
    assert not (outcomes[0].folder / "trackers").exists()


def test_the_tracker_of_the_page_works_as_it_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(__file__).parents[3] / "docs/guides/trackers.md"
    (tmp_path / "my_tracker.py").write_text(page.read_text().split("```python\n")[1].split("```")[0])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    config = Config(report_to=["my_tracker.py:CSV"])
    assert config.code == ["my_tracker.py:CSV"]  # a stranger's file may not name it
    with started(config, tmp_path, ["ada"]) as trackers:
        [tracker] = trackers.values()
        tracker.report(1, rows(1, "ada"), (), late=False)
    assert tracker.trouble == ""
    assert Path(tracker.news()).read_text() == "1,reward/local,0.25\n"


def test_a_name_that_is_none_is_an_error() -> None:
    with pytest.raises(
        UserError, match=r"there is no tracker 'wanbd'; did you mean 'wandb'\? \(or install the package"
    ):
        makers_of(Config(report_to=["wanbd"]))
