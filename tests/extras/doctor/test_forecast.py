"""What a run would take: memory adds up, and a run takes the memory that was expected."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.config.load import make_config
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.tasks import Tasks
from shoal_extras.doctor import forecast
from shoal_extras.doctor.forecast import (
    GROWTH,
    OTHERS,
    Trial,
    expected_peak,
    half_right,
    longest_answers,
    trial_policy,
    try_apart,
)

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def trial(model: str, trained: int = 10**8) -> Trial:
    """A hundred million parameters, of which so many are trained with 12 bytes each; 2 GB at the worst moment."""
    return Trial(model, 10**8, trained, 12 * trained, 2 * 10**9, 1.0, 1.0)


def peak(nodes: int, workers: int, *trials: Trial) -> float:
    """What a run of nodes with these models takes, without what a trial does not show."""
    settings = {"policy": {"model": [each.model for each in trials], "device": "cpu"}, "round": {"nodes": nodes}}
    expected = expected_peak(make_config(settings, "a test").resolved(), trials, workers)
    return (expected - max(1, workers) * OTHERS) / GROWTH


def test_memory_adds_up() -> None:
    assert peak(1, 0, trial("a")) == pytest.approx(2e9)
    assert peak(3, 0, trial("a"), trial("b")) == pytest.approx(2e9 + 2 * 1.2e9)  # nodes of a process take turns
    assert peak(3, 2, trial("a"), trial("b")) == pytest.approx(2 * 2e9 + 1.2e9)
    adapters = trial("a", trained=10**6)
    assert peak(3, 0, adapters) == pytest.approx(2e9 + 2 * 0.012e9)  # nodes share the base
    assert peak(3, 2, adapters) == pytest.approx(2 * 2e9 + 0.012e9)


def test_questions_without_room_are_not_tried(tmp_path: Path) -> None:
    rows = [{"prompt": f"{'1 ' * (i % 2 * 2000)}{i} + 1 =", "answer": str(i + 1)} for i in range(40)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"name": "data", "parameters": {"path": str(tmp_path / "q.jsonl")}}
    settings = {"tasks": {"sources": [data]}, "round": {"local": 1, "peers": 1, "questions_per_round": 6}}
    config = make_config(settings | {"evaluation": {"questions": 4}}, "a test").resolved()
    policy = trial_policy(make_config({}, "a test").resolved(), "guppy")  # rows that are too long are refused
    longest = longest_answers(config, policy, Tasks(config.tasks), budget=512)
    assert 1 <= len(longest) <= 2
    assert all(policy.has_room(scored.question) for scored in longest)


def test_a_trial_is_killed_first(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="is no model"):
        try_apart(Config().resolved(), "./nowhere")
    monkeypatch.setattr(forecast, "try_out", _killed)
    with pytest.raises(UserError, match="the trial of 'guppy' was killed"):
        try_apart(Config().resolved(), "guppy")


def _killed(*_: Any) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_of_smollm2_takes_what_was_expected(smollm2: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    argv = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "smol", "--model", str(smollm2)]
    subprocess.run([*argv, "--json", str(out)], check=True, capture_output=True)
    assert abs(json.loads(out.read_text())["smol"]["error"]) < 0.15


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_a_run_on_a_gpu_takes_what_was_expected() -> None:
    config = make_config({"policy": {"device": "cuda"}, "round": {"nodes": 1}}, "a test").resolved()
    total = expected_peak(config, [try_apart(config, "guppy")], 0)
    policy = trial_policy(config, "guppy")
    questions = Tasks(config.tasks).draw(8, 1, "node-1", 1)
    torch.cuda.reset_peak_memory_stats()
    groups = policy.generate(questions, config.policy.num_generations, 1)
    GRPOLearner(policy, config.learner, config.peers).update(
        [half_right(q, group) for q, group in zip(questions, groups, strict=True)]
    )
    assert torch.cuda.max_memory_allocated() < 1.15 * total
