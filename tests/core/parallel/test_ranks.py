"""Several ranks as one node group: what one rank does, two do as well, to rounding. `many.py` is what they do."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from test_run import SMALL, figures, resume, rollouts

from shoal.cli.main import main
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.parallel.ranks import ALONE, Ranks, joined
from shoal.runs.folder import RunFolder, read_metrics

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not torch.distributed.is_available() or sys.platform != "linux", reason="needs torch.distributed with gloo"
    ),
]

LONG = ["--round.local" if flag == "--local" else flag for flag in SMALL]  # torchrun takes --local for its own
LIVE = [*LONG, "--round.local", "4", "--num-generations", "8", "--num-iterations", "2"]
TWO = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]


def free_port() -> str:
    with socket.socket() as chosen:
        chosen.bind(("127.0.0.1", 0))
        return str(chosen.getsockname()[1])


def two_ranks(*arguments: str | Path) -> list[subprocess.Popen[str]]:
    """A program on two ranks, without torchrun, which takes seconds to start."""
    rank = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port(), "WORLD_SIZE": "2"}
    command = [sys.executable, *arguments]
    return [
        subprocess.Popen(command, env={**os.environ, **rank, "RANK": str(r)}, stderr=subprocess.PIPE, text=True)
        for r in range(2)
    ]


def latest(folder: Path) -> tuple[int, Path]:
    with RunFolder.open(folder) as opened:
        found = opened.latest()
    assert found is not None
    return found


def assert_alike(folder: Path, whole: Path, rounds: int) -> None:
    """Rollouts and rewards are the same, and other figures to rounding."""
    until = [(r, w) for r, w in zip(figures(folder), figures(whole), strict=False) if r["round"] <= rounds]
    assert len(until) == 2 * (rounds + 1)
    for row, expected in until:
        assert row.keys() == expected.keys()
        for name, value in expected.items():
            exact = value is None or isinstance(value, str)
            assert row[name] == (value if exact else pytest.approx(value, rel=1e-4, abs=1e-6)), name
        assert row.get("reward/local") == expected.get("reward/local")
    size = 2 * 4 * 8 * rounds
    assert rollouts(folder)[:size] == rollouts(whole)[:size]


def assert_same_weights(folder: Path, whole: Path) -> None:
    for node in ("node-1", "node-2"):
        ours, theirs = (load_file(latest(run)[1] / node / "model.safetensors") for run in (folder, whole))
        assert ours.keys() == theirs.keys()
        for name, weights in theirs.items():
            torch.testing.assert_close(ours[name], weights, rtol=0, atol=2e-5)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three rounds on one rank; the checkpoint after the second is in `second`."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert main(["run", *LIVE, "--rounds", "2", "--out", str(folder)]) == 0
    subprocess.run(["cp", "-r", folder, folder.with_name("second")], check=True)
    assert resume(folder, "--rounds", "3") == 0
    assert any(row.get("rollouts/live_local") for row in figures(folder))
    return folder


def test_alone_nothing_is_dealt() -> None:
    items = [3, 1, 2]
    assert ALONE.mine(items) == ALONE.deal(items, int) == ALONE.gather(items) == items
    assert ALONE.broadcast("x") == "x"
    assert ALONE.each(1) == [1]
    assert not ALONE.any(False)
    ALONE.add([torch.ones(2)])
    with joined("auto") as ranks:
        assert ranks is ALONE


def test_rows_are_dealt_so_that_all_have_about_the_same_to_do() -> None:
    costs = [9, 1, 1, 8, 2, 7, 3, 1]
    hands = [Ranks(rank, 3).deal(costs, int) for rank in range(3)]
    assert sorted(cost for hand in hands for cost in hand) == sorted(costs)
    assert [sum(hand) for hand in hands] == [11, 11, 10]
    assert Ranks(2, 3).deal([5, 5], int) == []


def test_two_ranks_learn_and_answer_as_one_does(tmp_path: Path) -> None:
    """In float64, with all that an update can have: several steps, checkpointing, clipping;
    and on from a checkpoint."""
    import many
    from many import all_cases

    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    processes = two_ranks(Path(many.__file__), tmp_path / "two")
    expected = all_cases(ALONE, tmp_path / "one")
    said = [process.communicate()[1] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], said
    found: list[Any] = [torch.load(tmp_path / "two" / f"rank-{r}.pt", weights_only=False) for r in range(2)]
    assert [{k: v["metrics"] for k, v in each.items()} for each in found] == [
        {k: v["metrics"] for k, v in found[0].items()}
    ] * 2
    for name, theirs in found[0].items():
        ours = expected[name]
        assert [list(a) for a in theirs["metrics"]] == [list(a) for a in ours["metrics"]]
        for a, b in zip(theirs["metrics"], ours["metrics"], strict=True):
            assert a == pytest.approx(b, rel=1e-6, abs=1e-9), name
        assert theirs["weights"].keys() >= ours["weights"].keys()
        for key, weight in ours["weights"].items():
            torch.testing.assert_close(theirs["weights"][key], weight, rtol=0, atol=1e-10)
        assert theirs["tokens"] == ours["tokens"] == found[1][name]["tokens"]
        torch.testing.assert_close(theirs["saved"]["optimizer"], ours["saved"]["optimizer"], rtol=0, atol=1e-10)


def test_a_run_on_two_ranks_stopped_by_ctrl_c_goes_on_with_one(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    command = [*TWO, free_port(), "-m", "shoal", "run", *LIVE, "--rounds", "4000"]
    with subprocess.Popen([*command, "--out", str(folder)], stdout=subprocess.PIPE, text=True) as process:
        while not (folder / "metrics.jsonl").exists() or max(r["round"] for r in read_metrics(folder)) < 1:
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=60)[0]
    assert said.count(f"shoal run --resume {folder}") == 1  # one rank speaks
    reached = latest(folder)[0]
    assert read_metrics(folder)[-1]["round"] == reached
    assert_alike(folder, whole, min(reached, 3))
    if reached < 3:
        assert resume(folder, "--rounds", "3") == 0
        assert_alike(folder, whole, 3)
        assert_same_weights(folder, whole)


@pytest.mark.slow
def test_two_ranks_go_on_where_one_rank_ended(whole: Path) -> None:
    folder = whole.with_name("second")
    command = [*TWO, free_port(), "-m", "shoal", "run", "--resume", str(folder), "--rounds", "3", "--quiet"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("held-out pass@1") == 1
    assert "2 ranks" in done.stdout
    assert_alike(folder, whole, 3)
    assert_same_weights(folder, whole)


FAULTY = """
import os, signal, sys
from shoal.errors import UserError
from shoal.parallel.ranks import joined

with joined("cpu") as ranks:
    if ranks.rank == 1 or sys.argv[1] == "both":
        if sys.argv[1] == "bug":
            1 / 0
        if sys.argv[1] == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise UserError("no such thing")
    ranks.each(None)
"""


@pytest.mark.parametrize(("fault", "codes"), [("user", [1, 2]), ("bug", [1, 1]), ("killed", [1, -9]), ("both", [2, 2])])
def test_an_error_on_one_rank_ends_all_and_is_told_once(fault: str, codes: list[int]) -> None:
    start = time.monotonic()
    processes = two_ranks("-c", FAULTY, fault)
    said = [process.communicate(timeout=60)[1] for process in processes]
    assert time.monotonic() - start < 30  # most of it imports
    assert [process.returncode for process in processes] == codes
    words = {"user": "shoal: rank 1: no such thing", "bug": "ZeroDivisionError:", "killed": "has lost another rank"}
    assert "".join(said).count(words.get(fault, "no such thing")) == 1
    assert ("Traceback" in "".join(said)) == (fault == "bug")


def test_what_does_not_go_with_ranks_is_said() -> None:
    from shoal.runs.machine import place_rank
    from shoal.runs.models import language_policy

    def config(**settings: dict[str, Any]) -> Config:
        return Config.model_validate(settings)

    two, here = Ranks(1, 2, 1, 2), place_rank(Config(), ALONE)
    with pytest.raises(UserError, match="vllm"):
        language_policy(config(policy={"engine": "vllm"}), "guppy", here, two)
