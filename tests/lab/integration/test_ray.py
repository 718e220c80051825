"""Studies and runs on a Ray cluster of three machines, which are processes here: one of them is lost."""

from __future__ import annotations

import sys
from collections.abc import Iterator
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

pytestmark = pytest.mark.slow
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
    for _ in range(2):
        made.add_node(num_cpus=1)
    ray.init(made.address, log_to_driver=False)
    yield made
    ray.shutdown()
    made.shutdown()


def lose_a_machine(cluster: Any) -> None:
    cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)


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
    pair = study(1, rounds=6, checkpoint_every=2)
    cells = pair.runs()
    seen: list[tuple[int, str, Any]] = []
    for event in run_on_ray("ray", pair, tmp_path / "ray", cells):
        seen.append((event.job, event.kind, event.value))
        if event.kind == "progress" and event.value == 4 and not any(kind == "lost" for _, kind, _ in seen):
            lose_a_machine(cluster)  # by now the checkpoint of round 2 is here
    lost = next(place for place, (_, kind, _) in enumerate(seen) if kind == "lost")
    job = seen[lost][0]
    again = [value for number, kind, value in seen[lost:] if (number, kind) == (job, "progress")]
    assert again[0] >= 3
    assert run_study(pair, tmp_path / "alone", QUIET, jobs=2) == []
    for cell in cells:
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
