"""Whole runs of the program, with guppy: what they leave, that they repeat, stop, resume, and survive being killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd
import pytest
from support.figures import figures

from shoal.cli.main import main
from shoal.runs.folder import RunFolder, read_metrics

if TYPE_CHECKING:
    from shoal.policy.loading import LanguageModel

pytestmark = pytest.mark.slow

SMALL = """--nodes 2 --local 2 --peers 1 --num-generations 4 --learner.learning-rate 1e-3 --threads 1
    --evaluation.every 2 --eval-questions 2 --eval-samples 1 --checkpoint-every 1 --quiet""".split()


def run(*args: str | Path) -> int:
    return main(["run", *SMALL, *map(str, args)])


def resume(folder: Path, *args: str) -> int:
    return main(["run", "--resume", str(folder), "--quiet", *args])


def unevaluated(folder: Path, rounds: int) -> list[dict[str, Any]]:
    """The figures of the first rounds without those of evaluations."""
    rows = [row for row in figures(folder) if row["round"] <= rounds]
    return [{key: value for key, value in row.items() if not key.startswith("eval/")} for row in rows]


def rollouts(folder: Path) -> list[dict[str, Any]]:
    return pd.read_parquet(folder / "rollouts.parquet").to_dict("records")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An uninterrupted run of four rounds."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    assert run("--rounds", "4", "--out", folder) == 0
    return folder


def test_what_a_run_leaves(whole: Path) -> None:
    rows = read_metrics(whole)
    assert [(row["round"], row["node"]) for row in rows] == [(r, n) for r in range(5) for n in ("node-1", "node-2")]
    wanted = """round node time reward/local reward/peers reward/trained_on rollouts/live_local rollouts/shared
        rollouts/sampled rollouts/pool completions/mean_length completions/truncated loss grad_norm entropy
        tokens/generated tokens/trained seconds/generate seconds/score seconds/learn""".split()
    for row in rows[2:]:
        assert set(wanted) <= set(row)
    assert [row["round"] for row in rows if "eval/pass@1" in row] == [0, 0, 2, 2, 4, 4]
    assert len(rollouts(whole)) == 4 * 2 * 2 * 4
    with RunFolder.open(whole) as folder:
        latest = folder.latest()
    assert latest is not None
    assert latest[0] == 4
    assert (latest[1] / "node-1" / "config.json").exists()


def test_its_config_reproduces_it(whole: Path, tmp_path: Path) -> None:
    again = tmp_path / "again"
    assert main(["run", "--config", str(whole / "config.toml"), "--out", str(again), "--quiet"]) == 0
    assert figures(again) == figures(whole)
    assert rollouts(again) == rollouts(whole)


def test_another_seed_is_another_run(whole: Path, tmp_path: Path) -> None:
    assert run("--rounds", "1", "--seed", "1", "--out", tmp_path / "other") == 0
    assert rollouts(tmp_path / "other") != rollouts(whole)[: 2 * 2 * 4]


def test_a_resumed_run_goes_on_as_if_nothing_had_happened(whole: Path, tmp_path: Path) -> None:
    folder = tmp_path / "stopped"
    assert run("--rounds", "3", "--out", folder) == 0
    assert resume(folder, "--rounds", "4") == 0
    assert [row for row in figures(folder) if row["round"] != 3] == [row for row in figures(whole) if row["round"] != 3]
    assert rollouts(folder) == rollouts(whole)


def test_a_finished_run_has_nothing_left_to_do(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = figures(whole)
    assert resume(whole) == 0
    assert figures(whole) == before


def test_eval_reads_a_checkpoint(whole: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = whole / "checkpoints" / "round-000004" / "node-2"
    arguments = ["--task", "gcd", "--task", "lcm", "--questions", "3", "--samples", "4", "--json"]
    assert main(["eval", str(model), *arguments]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["tasks"]) == ["gcd", "lcm"]
    for estimates in (result["all"], *result["tasks"].values()):
        assert 0 <= estimates["pass@1"]["low"] <= estimates["pass@1"]["value"] <= estimates["pass@1"]["high"] <= 1
        assert estimates["pass@1"]["value"] <= estimates["pass@4"]["value"]


def test_models_of_different_kinds_learn_from_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tiny_lm: Callable[..., LanguageModel]
) -> None:
    """Guppy and an untrained model of another architecture and another tokenizer, on a task of one's own."""
    monkeypatch.syspath_prepend(str(Path(__file__).parent))
    tiny_lm("qwen2").save(tmp_path / "tiny")
    config = tmp_path / "own.toml"
    config.write_text('[[tasks.sources]]\nname = "letters:Letters"\n')
    arguments = ["--config", config, "--allow-code", "--model", "guppy", "--model", tmp_path / "tiny"]
    arguments += ["--max-completion-length", "8"]
    assert run(*arguments, "--rounds", "2", "--out", tmp_path / "run") == 0
    assert resume(tmp_path / "run", "--rounds", "3", "--allow-code") == 0
    rows = [row for row in read_metrics(tmp_path / "run") if row["round"]]
    for node in ("node-1", "node-2"):
        assert sum(row["rollouts/sampled"] for row in rows if row["node"] == node) > 0
        assert sum(row["tokens/trained"] for row in rows if row["node"] == node) > 0
    assert not any(row["rollouts/refused"] for row in rows)
    checkpoint = tmp_path / "run" / "checkpoints" / "round-000003"
    kinds = [json.loads((checkpoint / node / "config.json").read_text())["model_type"] for node in ("node-1", "node-2")]
    assert len(set(kinds)) == 2


@pytest.mark.skipif(os.name == "nt", reason="needs signals")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, getattr(signal, "SIGHUP", signal.SIGINT)])
def test_a_signal_stops_after_the_round_in_hand(whole: Path, tmp_path: Path, number: int) -> None:
    folder = tmp_path / "run"
    command = [sys.executable, "-m", "shoal", "run", *SMALL, "--rounds", "4000", "--out", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        while not (folder / "metrics.jsonl").exists() or not any(row["round"] for row in read_metrics(folder)):
            assert process.poll() is None
            time.sleep(0.05)
        process.send_signal(number)
        said = process.communicate()[0]
    assert process.returncode == 130
    assert f"shoal run --resume {folder}" in said
    rows = read_metrics(folder)
    with RunFolder.open(folder) as opened:
        latest = opened.latest()
    assert latest is not None
    assert latest[0] == rows[-1]["round"]
    seen = min(latest[0], 3)
    assert unevaluated(folder, seen) == unevaluated(whole, seen)  # the stop may have cut an evaluation short


KILLER = """
import os, random, signal, sys, threading, time
import shoal.runs.run, shoal.cli.session, shoal.tasks.reasoning
from shoal.cli.main import main

arguments, folder, chance = sys.argv[2:], sys.argv[1], random.Random(int(os.environ["SEED"]))
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)

def live(life):
    '''One life of the run; killed at a random step on the disk, or after a random time, later and later, so that a
    slow machine comes to the end as well.'''
    longer = 1 + life / 8
    step, delay = int(longer * chance.randrange(1, 30)), longer * chance.uniform(0.2, 2)
    pid = os.fork()
    if pid:
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if life % 2:
        threading.Timer(delay, kill).start()
    else:
        def count(event, details):
            nonlocal step
            writes = event in ("os.rename", "os.mkdir", "os.remove", "shutil.rmtree") or (
                event == "open" and isinstance(details[2], int) and details[2] & (os.O_WRONLY | os.O_RDWR))
            if writes and folder in str(details[0]):
                step -= 1
                if step == 0:
                    kill()
        sys.addaudithook(count)
    begun = os.path.exists(folder + "/config.toml")
    os._exit(main(["run", "--quiet", "--resume", folder] if begun else ["run", *arguments, "--out", folder]))

life = 0
while True:
    code = live(life)
    life += 1
    print(code, flush=True)
    if code == 0 or life == 100:
        break
    sys.stdin.readline()
"""


@pytest.mark.slow
@pytest.mark.timeout(900)  # a busy machine is killed more often
@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork and SIGKILL")
def test_a_run_that_is_killed_again_and_again_ends_as_if_it_had_not_been(tmp_path: Path) -> None:
    whole, folder = tmp_path / "whole", tmp_path / "run"
    assert run("--rounds", "24", "--out", whole) == 0
    command = [sys.executable, "-c", KILLER, str(folder), *SMALL, "--rounds", "24"]
    last, deaths = 0, 0
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes, env={**os.environ, "SEED": "1"}) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for line in process.stdout:
            if not line.strip().lstrip("-").isdigit():
                continue
            if line.strip() == "0":
                break
            assert line.strip() == str(-signal.SIGKILL)
            deaths += 1
            if (folder / "config.toml").exists():
                with RunFolder.open(folder) as opened:
                    latest = opened.latest()
                    written = max((row["round"] for row in read_metrics(opened.path)), default=0)
                reached = latest[0] if latest else 0
                assert reached >= last
                assert reached >= written - 1  # at most the round in hand is lost
                last = reached
            process.stdin.write("\n")
            process.stdin.flush()
        else:
            pytest.fail("it never got to its end")
    assert deaths >= 5  # how many depends on how fast the machine is
    assert figures(folder) == figures(whole)
    assert rollouts(folder) == rollouts(whole)
