"""What a run would take: advice fits, seconds add up, and a run takes the memory that was expected."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from memory_estimates import models

from shoal.config.load import make_config
from shoal.config.settings import Config

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("share", [0.9, 0.6])
@pytest.mark.parametrize("workers", [0, 2])
def test_advice_fits_and_needs_all_of_it(share: float, workers: int) -> None:
    from shoal.learn.memory import estimate
    from shoal.runs.forecast import MARGIN, Model, advise, changed

    config = Config()
    known = [Model(config.policy.model[0], *models(config.round.nodes))]

    def needed(change: dict[str, Any]) -> float:
        processes = min(change.get("round.workers", workers), change.get("round.nodes", workers))
        return MARGIN * sum(estimate(changed(config, known, change), 10**8, processes).values())

    free = round(share * needed({}))
    advice = advise(config, known, 10**8, free, workers)
    assert 1 <= len(advice) <= 3
    for change in advice:
        assert needed(change) <= free
        last = list(change)[-1]
        assert needed({name: value for name, value in change.items() if name != last}) > free
    assert advise(config, known, 10**8, 0, workers) == []


def test_seconds_add_up() -> None:
    from shoal.runs.forecast import Speed, expected_seconds

    settings = {
        "rounds": 10,
        "policy": {"model": ["a", "b"], "device": "cpu"},
        "round": {"nodes": 3, "workers": 0},
        "evaluation": {"every": 4},
    }
    config = make_config(settings, "a test").resolved()
    speeds = {"a": Speed(1.0, 1.0, 2.0, 3.0, 4.0), "b": Speed(1.0, 1.0, 20.0, 30.0, 40.0)}
    times = expected_seconds(config, speeds, 0)
    assert (times["answering"], times["learning"], times["evaluating"]) == (24, 36, 48)  # a, b and a again
    assert times["evaluations"] == 4  # in rounds 0, 4, 8 and 10
    assert times["run"] == 10 * 60 + 4 * 48
    assert expected_seconds(config, speeds, 2)["answering"] == 20  # a round waits for b, alone in its process
    config.round.nodes = 5
    assert expected_seconds(config, speeds, 2)["answering"] == 40  # one process has three a, the other two b


def test_all_questions_of_a_round_are_counted() -> None:
    from shoal.runs.forecast import measure, trial_policy
    from shoal.tasks import Tasks

    config = make_config({"round": {"local": 2, "peers": 1, "questions_per_round": 6}}, "a test").resolved()
    work = measure(config, trial_policy(config, "guppy"), "guppy", Tasks(config.tasks)).work
    assert {number for number, _, each in work.decoded if each == config.policy.num_generations} == {6}


def test_questions_without_room_are_neither_counted_nor_tried(tmp_path: Path) -> None:
    from shoal.runs.forecast import measure, trial_policy, try_out
    from shoal.tasks import Tasks

    rows = [{"prompt": f"{'1 ' * (i % 2 * 2000)}{i} + 1 =", "answer": str(i + 1)} for i in range(40)]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"name": "data", "parameters": {"path": str(tmp_path / "q.jsonl")}}
    settings = {"tasks": {"sources": [data]}, "round": {"local": 1, "peers": 1, "questions_per_round": 6}}
    config = make_config(settings | {"evaluation": {"questions": 4}}, "a test").resolved()
    policy = trial_policy(make_config({}, "a test").resolved(), "guppy")  # rows that are too long are refused
    tasks = Tasks(config.tasks)

    def rooms(seed: int) -> list[bool]:
        return [policy.has_room(question) for question in tasks.draw(6, seed, "node-1", 1)]

    config.seed = next(seed for seed in range(100) if not rooms(seed)[0] and any(rooms(seed)))
    work = measure(config, policy, "guppy", tasks).work
    assert sum(rooms(config.seed)) in {number for number, _, each in work.decoded if each > 1}
    assert try_out(config, policy, tasks, seconds=0.2).learning > 0


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_run_of_smollm2_takes_what_was_expected(smollm2: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    argv = [sys.executable, str(ROOT / "benchmarks" / "memory.py"), "smol", "--model", str(smollm2)]
    subprocess.run([*argv, "--json", str(out)], check=True, capture_output=True)
    assert abs(json.loads(out.read_text())["smol"]["error"]) < 0.15


@pytest.mark.gpu
def test_a_run_on_a_gpu_takes_what_was_expected() -> None:
    import torch

    from shoal.runs.forecast import expected_memory, trial_policy, try_out
    from shoal.tasks import Tasks

    config = make_config({"policy": {"device": "cuda"}, "round": {"nodes": 1}}, "a test").resolved()
    total = sum(expected_memory(config).values())
    torch.cuda.reset_peak_memory_stats()
    try_out(config, trial_policy(config, "guppy"), Tasks(config.tasks))
    assert torch.cuda.max_memory_allocated() < 1.15 * total  # the trial is no more than a run
