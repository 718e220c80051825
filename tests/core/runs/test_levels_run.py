"""Whole runs on a ladder: they climb, and go on where they stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import shoal
from shoal.errors import UserError

pytestmark = pytest.mark.slow

LADDER = {"name": "lengths:Short", "levels": [{"longest": 30}, {"longest": 4}, {"longest": 1}]}
SETTINGS: dict[str, Any] = {
    "tasks": [LADDER],
    "nodes": 2,
    "local": 4,
    "peers": 2,
    "num_generations": 4,
    "max_completion_length": 4,
    "threads": 1,
    "eval_questions": 2,
    "eval_samples": 1,
    "checkpoint_every": 1,
}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_run_climbs_and_a_resumed_one_draws_the_same_levels(tmp_path: Path, workers: int) -> None:
    whole = shoal.run(**SETTINGS, workers=workers, device="cpu", rounds=6, out=tmp_path / "whole")
    levels = whole.metrics["level/short"].dropna()
    assert levels.iloc[0] < 1.5 < levels.iloc[-1]
    assert {f"eval/pass@1/short@{level}" for level in (1, 2, 3)} <= set(whole.metrics.columns)
    stopped = shoal.run(**SETTINGS, workers=workers, device="cpu", rounds=4, out=tmp_path / "stopped")
    shoal.run(resume=stopped.folder, rounds=6, allow_code=True)
    kept = (stopped.folder / "checkpoints" / "round-000006" / "node-1" / "levels.msgpack").read_bytes()
    assert kept == (whole.folder / "checkpoints" / "round-000006" / "node-1" / "levels.msgpack").read_bytes()
    questions = [frame[["node", "config", "seed", "index"]] for frame in (whole.rollouts, stopped.rollouts)]
    assert questions[0].equals(questions[1])


def test_a_checkpoint_whose_levels_are_broken_is_named(tmp_path: Path) -> None:
    result = shoal.run(**SETTINGS, rounds=1, out=tmp_path / "run")
    [file] = result.folder.glob("checkpoints/*/node-1/levels.msgpack")
    file.write_text('[["short"]]')
    with pytest.raises(UserError, match="cannot be read"):
        shoal.run(resume=result.folder, rounds=2, allow_code=True)
