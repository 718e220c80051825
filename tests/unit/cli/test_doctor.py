"""What `shoal doctor` says: counts agree with what is kept, parts with their sum, and advice with the estimate."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from shoal.config.load import make_config
from shoal.config.settings import Config

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
@pytest.mark.parametrize(("rows", "length"), [(1, 100), (3, 70)])
def test_long_rows_follow_from_short_ones(architecture: str, rows: int, length: int) -> None:
    from tiny import CPU, make_model

    from shoal.learn.activations import count_activations, count_once, trial_batch

    model = make_model(architecture)
    counted = count_once(model, CPU, trial_batch(rows, length, CPU.device))
    whole = sum(kept for kept, _ in counted.values())
    assert count_activations(model, CPU).kept(rows, length, checkpointed=False) == pytest.approx(whole, rel=0.03)


def test_checkpointing_keeps_less() -> None:
    from tiny import CPU, make_model

    from shoal.learn.activations import count_activations

    counted = count_activations(make_model("llama"), CPU)
    assert counted.kept(1, 100, checkpointed=True) < 0.8 * counted.kept(1, 100, checkpointed=False)


def test_auto_checkpoints_where_much_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny import CPU, make_model

    from shoal.learn import checkpointing

    model = make_model("llama")
    kept = checkpointing.count_activations(model, CPU).kept(1, 100, checkpointed=False)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 2**40)
    assert not checkpointing.worth_checkpointing(model, CPU, 100)
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", kept - 1)
    assert checkpointing.worth_checkpointing(model, CPU, 100)
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 2**40)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 4 * kept - 4)
    assert checkpointing.worth_checkpointing(model, CPU, 100)


def models(nodes: int = 4) -> list[Any]:
    """A hundred million parameters, with figures of the order of SmolLM2's."""
    from shoal.learn.activations import Activations, Growth
    from shoal.learn.memory import Sizes, Work

    activations = Activations(Growth(0, 1.4e6, 120), Growth(0, 48e3, 4), Growth(0, 4600, 0), Growth(0, 69e3, 0))
    sizes = Sizes(10**8, 10**8, 28 * 10**6, 49152, 3648, 46080, activations, adapted=300_000)
    work = Work(nodes, "adamw", False, False, [(1, 1000, 500), (4, 250, 400)], [(4, 300, 8)], 256, 2**30)
    return [(sizes, work)]


def test_parts_of_an_estimate() -> None:
    from shoal.learn.memory import KINDS, estimate

    [(sizes, work)] = models()
    parts = estimate([(sizes, work)], 5 * 10**8)
    assert tuple(parts) == KINDS
    assert parts["weights"] == 4 * 4 * 10**8
    assert parts["optimizer"] == 4 * 8 * 10**8
    assert parts["reference"] == 0
    assert parts["activations"] == round(sizes.activations.kept(1, 1000, False))
    kept = estimate([(sizes, replace(work, reference=True))], 5 * 10**8)
    assert kept["reference"] == 4 * 4 * 10**8
    adapted = estimate([(sizes.with_adapters(8), work)], 5 * 10**8)
    assert adapted["weights"] == 4 * (10**8 - 8 * 300_000 + 4 * 8 * 300_000)  # the base is shared


@pytest.mark.parametrize("share", [0.9, 0.6, 0.3])
def test_advice_fits_and_is_minimal(share: float) -> None:
    from shoal.cli.doctor import MARGIN, _expected_after, advise
    from shoal.learn.memory import estimate

    config = Config()
    known = models(config.swarm.nodes)
    free = round(share * MARGIN * sum(estimate(known, 10**8).values()))
    advice = advise(config, known, 10**8, free)
    assert advice
    for change in advice:
        assert _expected_after(config, known, 10**8, change) * MARGIN <= free
        for name in change:
            less = {other: value for other, value in change.items() if other != name}
            assert _expected_after(config, known, 10**8, less) * MARGIN > free
    assert advise(config, known, 10**8, 0) == []


def test_help_imports_nothing_heavy() -> None:
    program = (
        "import argparse, sys\nfrom shoal.cli.doctor import add_arguments\nadd_arguments(argparse.ArgumentParser())\n"
        "print(sorted({'torch', 'transformers', 'reasoning_gym'} & sys.modules.keys()))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_report_as_json(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.cli import doctor
    from shoal.cli.flags import Parser

    parser = Parser()
    doctor.add_arguments(parser)
    monkeypatch.setattr(doctor, "_program", lambda _: 5 * 10**8)
    args: argparse.Namespace = parser.parse(["--json", "--nodes", "2", "--threads", "1"])
    assert doctor.command(args) == 0
    report = json.loads(capsys.readouterr().out)
    assert report.keys() == {"machine", "models", "run"}
    run = report["run"]
    assert run.keys() == {"expected_peak_bytes", "parts_bytes", "free_bytes", "fits", "advice"}
    assert sum(run["parts_bytes"].values()) == run["expected_peak_bytes"]
    [model] = report["models"]
    assert (model["model"], model["nodes"]) == ("guppy", 2)
    assert model["trial"]["decode_tokens_per_second"] > 0
    assert model["trial"]["update_tokens_per_second"] > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_of_smollm2_takes_what_was_expected(smollm2: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    argv = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "smol-512", "--model", str(smollm2)]
    subprocess.run([*argv, "--json", str(out)], check=True, capture_output=True)
    assert abs(json.loads(out.read_text())["smol-512"]["error"]) < 0.15


@pytest.mark.gpu
def test_a_run_on_a_gpu_takes_what_was_expected() -> None:
    import torch

    from shoal.cli.doctor import _trial, expected
    from shoal.policy.device import place
    from shoal.policy.language import LanguagePolicy
    from shoal.runs.models import sampling_of
    from shoal.tasks import Tasks

    config = make_config({"policy": {"device": "cuda"}, "swarm": {"nodes": 1}}, "a test").resolved()
    total = sum(expected(config).values())
    torch.cuda.reset_peak_memory_stats()
    _trial(config, LanguagePolicy("guppy", sampling_of(config), place("cuda")), Tasks(config.tasks))
    assert torch.cuda.max_memory_allocated() < 1.15 * total  # the trial is no more than a run
