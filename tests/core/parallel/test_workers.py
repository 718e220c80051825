"""Models in worker processes: that a run with them is the run without, and how they end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
from support.figures import figures

from shoal.cli.main import main
from shoal.config.load import make_config
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import Stopped, UserError
from shoal.parallel.remote import RemoteLearner, RemotePolicy
from shoal.parallel.workers import COMMAND, Workers
from shoal.runs.folder import RunFolder, read_metrics
from shoal.runs.models import make_nodes
from shoal.tasks import Tasks

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.name == "nt", reason="needs signals")]

SMALL = """--nodes 3 --local 2 --peers 1 --num-generations 4 --learner.learning-rate 1e-3 --threads 1
    --evaluation.every 2 --eval-questions 2 --eval-samples 1 --checkpoint-every 1 --quiet""".split()
SETTINGS: dict[str, Any] = {"policy": {"device": "cpu", "max_completion_length": 8}, "threads": 1}


def run(folder: Path, workers: int | str, *args: str) -> None:
    assert main(["run", *SMALL, "--workers", str(workers), "--out", str(folder), *args]) == 0


def unevaluated(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The figures of the first rounds without those of evaluations."""
    rows = [row for row in figures(folder) if row["round"] <= rounds]
    return [{k: v for k, v in row.items() if not k.startswith("eval/")} for row in rows]


def state(folder: Path) -> dict[str, bytes]:
    """The files of the last checkpoint."""
    room = max((folder / "checkpoints").iterdir())
    return {str(path.relative_to(room)): path.read_bytes() for path in sorted(room.rglob("*")) if path.is_file()}


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of four rounds in one process."""
    folder = tmp_path_factory.mktemp("runs") / "alone"
    run(folder, 0, "--rounds", "4")
    return folder


@pytest.fixture
def workers() -> Iterator[Workers]:
    made = start({"node-1": "guppy", "node-2": "guppy", "node-3": "guppy"})
    made.wait_ready(lambda text: None)
    yield made
    made.close()


def start(sources: dict[str, str], **settings: Any) -> Workers:
    config = make_config(SETTINGS | settings, "test").resolved()
    return Workers(partial(make_nodes, config, None, 1), sources, 2, threads=1)


def test_a_run_with_workers_is_the_run_without(alone: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    run(folder, 2, "--rounds", "4")
    assert figures(folder) == figures(alone)
    ours, theirs = state(folder), state(alone)
    assert ours.keys() == theirs.keys()
    weights = [name for name in ours if name.endswith("model.safetensors")]
    assert len(weights) == 3
    assert all(ours[name] == theirs[name] for name in weights)


@pytest.mark.parametrize(("first", "then"), [(2, 0), (0, 2)])
def test_either_goes_on_with_what_the_other_left(alone: Path, tmp_path: Path, first: int, then: int) -> None:
    folder = tmp_path / "run"
    run(folder, first, "--rounds", "2")
    config = folder / "config.toml"
    config.write_text(config.read_text().replace(f"workers = {first}", f"workers = {then}"))
    assert main(["run", "--resume", str(folder), "--rounds", "4", "--quiet"]) == 0
    assert figures(folder) == figures(alone)
    assert state(folder)["node-3/model.safetensors"] == state(alone)["node-3/model.safetensors"]


def test_what_is_loaded_is_told_and_what_cannot_be_is_raised() -> None:
    told: list[str] = []
    made = start({"node-1": "guppy", "node-2": "./nowhere"})
    try:
        with pytest.raises(UserError, match="nowhere' is no model"):
            made.wait_ready(told.append)
    finally:
        made.close()
    assert told
    assert set(told) <= {"loading guppy", "loading nowhere"}, "two processes load at once"


def test_errors_come_back_as_they_are(workers: Workers, tmp_path: Path) -> None:
    policies = [RemotePolicy(workers, name) for name in workers.nodes]
    assert [policy.generate([], 2, 0) for policy in policies] == [[], [], []]
    with pytest.raises(FileNotFoundError):
        RemoteLearner(workers, "node-1").load(tmp_path / "nowhere")
    with pytest.raises(RuntimeError, match=r"(?s)no attribute 'sing'.*in the worker of node-2"):
        workers.lockstep.run([lambda: policies[0].generate([], 2, 0), lambda: policies[1]._call("sing")])
    assert policies[2].generate([], 2, 0) == []  # the worker goes on


def test_answering_is_told_of_and_can_be_ended(workers: Workers) -> None:
    """Answers that would take hours end at once, also those of nodes whose turn has not come."""
    policies = [RemotePolicy(workers, name) for name in workers.nodes]
    questions = Tasks(TasksConfig(only=["chain_sum"])).draw(500, "a key")

    def on_progress(answered: int) -> None:
        raise Stopped

    for policy in policies:
        policy.on_progress = on_progress
    with pytest.raises(Stopped):
        workers.lockstep.run([lambda p=p: p.generate(questions, 10_000, 0) for p in policies])
    told: list[int] = []
    for policy in policies:
        policy.on_progress = told.append
        assert len(policy.generate(questions[:20], 2, 0)) == 20
    assert all(0 <= count <= 20 for count in told)


def test_a_worker_that_is_killed_is_told_of(workers: Workers) -> None:
    policies = [RemotePolicy(workers, name) for name in workers.nodes]
    killed = workers._workers[0].process
    killed.kill()
    with pytest.raises(UserError, match=r"worker process of node-1, node-3 was ended by SIGKILL.*; --resume continues"):
        workers.lockstep.run([lambda p=p: p.generate([], 2, 0) for p in policies])
    assert policies[1].generate([], 2, 0) == []


@pytest.mark.parametrize(
    "settings",
    [{"device": "meta"}, {"model": ["http://localhost:9/v1"]}],
    ids=["device", "endpoints"],
)
def test_where_workers_cannot_be_they_are_refused(settings: dict[str, Any]) -> None:
    from shoal.parallel.ranks import ALONE
    from shoal.runs.machine import count_workers

    learning = {} if "model" in settings else {"node-1": "guppy", "node-2": "guppy"}
    with pytest.raises(UserError, match=r"--workers and --on ray need"):
        count_workers(with_workers(2), learning, placed(settings.get("device", "cpu")), ALONE, False)


def with_workers(count: int | str) -> Config:
    return make_config({**SETTINGS, "round": {"workers": count}, "threads": 0}, "test").resolved()


def placed(device: str) -> Any:
    import torch

    from shoal.policy.device import Placement

    return Placement(torch.device(device), torch.float32)


def test_auto_is_for_several_small_nodes_on_a_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import transformers

    from shoal.parallel.ranks import ALONE
    from shoal.runs.machine import count_workers

    monkeypatch.setattr("shoal.runs.machine.usable_cores", lambda: 4)
    free = [10**12]
    monkeypatch.setattr("shoal.runs.machine.free_ram", lambda: free[0])
    middle, large = tmp_path / "middle", tmp_path / "large"  # of 94 and 275 million parameters
    transformers.LlamaConfig(hidden_size=1024, num_hidden_layers=2, vocab_size=8192).save_pretrained(middle)
    transformers.LlamaConfig(hidden_size=1024, num_hidden_layers=6, vocab_size=8192).save_pretrained(large)
    auto, cpu = with_workers("auto"), placed("cpu")

    def count(sources: list[str], device: Any = cpu, joined: bool = False, **changes: Any) -> int:
        learning = {f"node-{number}": source for number, source in enumerate(sources)}
        return count_workers(auto.model_copy(update=changes), learning, device, ALONE, joined)

    assert count(["guppy"] * 3) == 3
    assert count(["guppy"] * 9) == 4
    assert count(["guppy"] * 9, threads=2) == 2
    assert count(["guppy"] * 9, threads=4) == 0
    assert count(["guppy"]) == 0
    assert count(["guppy", str(middle)]) == 2
    assert count(["guppy", str(large)]) == 0
    assert count(["guppy", "./nowhere"]) == 0
    assert count(["guppy"] * 3, rounds=5) == 0  # over at once
    assert count(["guppy"] * 3, joined=True) == 0
    assert count(["guppy"] * 3, placed("meta")) == 0
    own = auto.policy.model_copy(update={"model": ["guppy", "mine:Policy"]})
    assert count(["guppy"] * 3, policy=own) == 0
    free[0] = 4 * 10**9  # of which guppies need little
    assert count(["guppy"] * 2) == 2
    assert count(["guppy", str(middle)]) == 0


def children(process: int) -> list[psutil.Process]:
    """The worker processes that `process` started, and that have not ended."""
    return [child for child in psutil.Process(process).children() if COMMAND[-1] in child.cmdline()]


def wait_for(folder: Path, process: subprocess.Popen[str]) -> None:
    """Until the first round has ended."""
    while not (folder / "metrics.jsonl").exists() or not any(row["round"] for row in read_metrics(folder)):
        assert process.poll() is None
        time.sleep(0.05)


def gone(processes: list[psutil.Process]) -> bool:
    """Whether all have ended, within some seconds. An orphan that nobody waits for stays a zombie."""
    for _ in range(100):
        if not any(map(alive, processes)):
            return True
        time.sleep(0.1)
    return False


def alive(process: psutil.Process) -> bool:
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


@pytest.mark.parametrize("how", ["interrupt", "kill", "worker"])
def test_how_a_run_and_its_workers_end(alone: Path, tmp_path: Path, how: str) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "shoal", "run", *SMALL, "--workers", "2", "--rounds", "4000", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_for(folder, process)
        started = children(process.pid)
        assert len(started) == 2
        if how == "worker":
            started[0].kill()
        else:
            process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
        said, complaint = process.communicate()
    assert gone(started)
    if how == "interrupt":
        assert process.returncode == 130
        assert f"shoal run --resume {folder}" in said
    if how == "worker":
        assert process.returncode == 2
        assert complaint.count("\n") == 1
        assert "the worker process of node-" in complaint
        assert "--resume continues" in complaint
    with RunFolder.open(folder) as opened:
        latest = opened.latest()
    assert latest is not None
    seen = min(latest[0], 3)
    assert unevaluated(folder, seen) == unevaluated(alone, seen)  # the stop may have cut an evaluation short
