"""Studies and runs on a Ray cluster of three machines, which are processes here: one of them is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import tomli_w
from rich.console import Console
from support.figures import figures

from shoal.cli.main import main
from shoal.errors import UserError
from shoal_lab.cells import DONE
from shoal_lab.far_cells import run_on_ray
from shoal_lab.report import write_report
from shoal_lab.results import read_results
from shoal_lab.runner import QUIET_LAB, run_study
from shoal_lab.study import Study

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
QUIET = Console(quiet=True)


def study(seeds: int, rounds: int = 1, **base: Any) -> Study:
    settings = QUIET_LAB | {
        "rounds": rounds,
        "round": {"nodes": 2, "local": 1, "peers": 1, "workers": 0},
        "evaluation": {"every": 0},
        "tasks": {"only": ["chain_sum"]},
    }
    arms: dict[str, Any] = {"1/1": {}, "1/0": {"round": {"peers": 0}}}
    return Study.model_validate(
        {"title": "Ray", "seeds": list(range(1, seeds + 1)), "base": settings | base, "arms": arms}
    )


@pytest.fixture
def cluster() -> Iterator[Any]:
    """A head without room for cells, and two machines with a processor each."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    ray.init(made.address, log_to_driver=False)  # by the head, which no test kills: later it may take any of them
    for _ in range(2):
        made.add_node(num_cpus=1)
    yield made
    ray.shutdown()
    made.shutdown()


def lost(cluster: Any) -> bool:
    return len(cluster.worker_nodes) < 2


def lose_a_machine(cluster: Any, busy: bool = False) -> None:
    """Kills one of two machines. `busy`: the one on which a cell runs."""
    from ray._private.state import available_resources_per_node

    free = {id for id, room in available_resources_per_node().items() if room.get("CPU")} if busy else set()
    machine = next(each for each in cluster.worker_nodes if each.node_id not in free)
    cluster.remove_node(machine, allow_graceful=False)


@pytest.mark.cluster
def test_a_study_of_24_cells_survives_the_loss_of_a_machine(cluster: Any, tmp_path: Path) -> None:
    several = study(12)
    (tmp_path / "study.toml").write_text(tomli_w.dumps(several.model_dump(exclude_none=True, exclude_defaults=True)))
    ends: list[tuple[int, str]] = []
    for event in run_on_ray("ray", several, tmp_path, several.runs()):
        if event.kind != "progress":
            ends.append((event.job, event.kind))
            if len(ends) == 4:
                lose_a_machine(cluster)
    done = [job for job, kind in ends if kind == "done"]
    assert sorted(done) == list(range(24))
    assert {kind for _, kind in ends} <= {"done", "lost"}
    assert read_results(tmp_path).unfinished == []
    assert write_report(tmp_path, QUIET).exists()


@pytest.mark.cluster
def test_a_lost_cell_goes_on_from_its_last_checkpoint_to_the_same_digits(cluster: Any, tmp_path: Path) -> None:
    one = study(1, rounds=20, checkpoint_every=2)
    one.arms.pop("1/0")
    [cell] = cells = one.runs()
    seen: list[tuple[str, Any]] = []
    for event in run_on_ray("ray", one, tmp_path / "ray", cells):
        seen.append((event.kind, event.value))
        if event.kind == "progress" and event.value >= 4 and not lost(cluster):
            lose_a_machine(cluster, busy=True)  # by now the checkpoint of round 2 is here
    again = [value for kind, value in seen[[kind for kind, _ in seen].index("lost") :] if kind == "progress"]
    assert again[0] >= 3
    assert run_study(one, tmp_path / "alone", QUIET, jobs=1) == []
    assert (tmp_path / "ray" / cell.path / DONE).exists()
    assert figures(tmp_path / "ray" / cell.path) == figures(tmp_path / "alone" / cell.path)


@pytest.mark.cluster
def test_a_cell_that_is_larger_than_a_machine_has_its_nodes_on_several(cluster: Any, tmp_path: Path) -> None:
    for _ in range(2):
        cluster.add_node(num_cpus=1, num_gpus=1)  # which nobody uses: on a processor the digits are the same
    large = study(1, round={"nodes": 2, "local": 1, "peers": 1, "workers": 0, "gpus": 1.0})
    large.arms.pop("1/0")
    assert run_study(large, tmp_path / "ray", QUIET, on="ray") == []
    large.base["round"].pop("gpus")
    assert run_study(large, tmp_path / "alone", QUIET, jobs=1) == []
    [cell] = large.runs()
    assert figures(tmp_path / "ray" / cell.path) == figures(tmp_path / "alone" / cell.path)


@pytest.mark.cluster
def test_a_run_with_its_nodes_on_ray_is_the_run_without(cluster: Any, tmp_path: Path) -> None:
    command = (
        "run --nodes 2 --local 1 --peers 1 --threads 1 --only chain_sum --eval-questions 1 --eval-samples 1".split()
    )
    command += "--checkpoint-every 1 --workers 0 --quiet".split()
    assert main([*command, "--rounds", "2", "--out", str(tmp_path / "here")]) == 0
    assert main([*command, "--rounds", "1", "--out", str(tmp_path / "ray"), "--on", "ray"]) == 0
    assert main(["run", "--resume", str(tmp_path / "ray"), "--rounds", "2", "--quiet"]) == 0  # on Ray again
    ray, here = (
        [{key: row[key] for key in row if not key.startswith("eval/")} for row in figures(tmp_path / name)]
        for name in ("ray", "here")
    )
    assert ray == here  # but for the evaluation after the last round, which was the first one there


def stopped_by_ctrl_c(command: list[str], begun: Callable[[], bool], env: dict[str, str]) -> int:
    """The exit code of a command of shoal that starts Ray, and gets what a terminal sends as soon as it has `begun`."""
    process = subprocess.Popen([sys.executable, "-m", "shoal", *command], env=env, start_new_session=True)
    try:
        while not begun():
            assert process.poll() is None
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGINT)
        code = process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
    while True:  # until Ray has gone with it
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return code
        time.sleep(0.1)


@pytest.mark.cluster
def test_ctrl_c_ends_a_study_on_ray_and_the_same_command_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    one = study(1, rounds=20, checkpoint_every=2)
    (tmp_path / "study.toml").write_text(tomli_w.dumps(one.model_dump(exclude_none=True, exclude_defaults=True)))
    command = ["lab", "run", str(tmp_path / "study.toml"), "--out", str(tmp_path / "lab"), "--on", "ray"]
    env = dict(os.environ)
    code = stopped_by_ctrl_c(command, lambda: bool(list((tmp_path / "lab").rglob("round-000002"))), env)
    assert code == 130
    assert not list((tmp_path / "lab").rglob(DONE))
    assert subprocess.run([sys.executable, "-m", "shoal", *command], env=env).returncode == 0
    assert run_study(one, tmp_path / "alone", QUIET, jobs=2) == []
    for cell in one.runs():
        assert figures(tmp_path / "lab" / cell.path) == figures(tmp_path / "alone" / cell.path)


@pytest.mark.cluster
def test_ctrl_c_ends_a_run_on_ray_after_its_round_and_resume_goes_on(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    words = "run --nodes 2 --local 1 --peers 1 --threads 1 --only chain_sum --eval-questions 1 --eval-samples 1 --quiet"
    run = tmp_path / "run"
    command = [*words.split(), "--workers", "0", "--rounds", "100", "--out", str(run), "--on", "ray"]
    rows = run / "metrics.jsonl"  # one before the first round, then two for each
    code = stopped_by_ctrl_c(
        command, lambda: rows.exists() and len(rows.read_bytes().splitlines()) > 3, dict(os.environ)
    )
    assert code == 130
    rounds = max(int(row["round"]) for row in figures(run))
    assert (run / "checkpoints" / f"round-{rounds:06d}").exists()
    resume = ["run", "--resume", str(run), "--rounds", str(rounds + 1), "--quiet"]
    assert subprocess.run([sys.executable, "-m", "shoal", *resume]).returncode == 0


@pytest.mark.cluster
def test_too_much_for_the_cluster_is_said_in_a_line(
    cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--nodes", "2", "--on", "ray", "--gpus", "0.5", "--out", str(tmp_path / "run")]
    assert main([*command, "--quiet"]) == 2
    assert "no room for 2 nodes with" in capsys.readouterr().err


def test_without_ray_its_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UserError, match=r"pip install 'shoal\[ray\]'"):
        run_study(study(1), tmp_path, QUIET, on="ray")
