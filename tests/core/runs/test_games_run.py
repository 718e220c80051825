"""Whole runs of conversations: nodes learn from each other's, and go on where they stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pandas.testing import assert_frame_equal

import shoal

SETTINGS: dict[str, Any] = {
    "suite": "games",
    "nodes": 2,
    "local": 2,
    "peers": 2,
    "num_generations": 8,
    "threads": 1,
    "device": "cpu",
    "eval_questions": 2,
    "eval_samples": 1,
    "checkpoint_every": 1,
}


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_resumed_run_is_as_if_it_had_not_stopped(tmp_path: Path, workers: int) -> None:
    whole = shoal.run(**SETTINGS, workers=workers, rounds=3, out=tmp_path / "whole")
    stopped = shoal.run(**SETTINGS, workers=workers, rounds=1, out=tmp_path / "stopped")
    resumed = shoal.run(resume=stopped.folder, rounds=3)
    columns = ["node", "seed", "index", "completion", "conversation", "reward"]
    assert whole.rollouts[columns].equals(resumed.rollouts[columns])
    figures = [run.metrics for run in (whole, resumed)]
    same = [name for name in figures[0] if name.startswith(("reward/", "rollouts/", "loss", "grad_norm", "eval/"))]
    last = [frame[frame["round"] == 3][same].reset_index(drop=True) for frame in figures]
    assert_frame_equal(*last, check_dtype=False)
    assert whole.metrics["tokens/trained"].sum() > 0


@pytest.mark.slow
def test_nodes_learn_from_each_other_and_the_folder_has_every_turn(tmp_path: Path) -> None:
    run = shoal.run(**SETTINGS, workers=0, rounds=3, out=tmp_path / "run")
    assert run.metrics["rollouts/sampled"].sum() > 0
    assert run.metrics["tokens/trained"].sum() > 0
    assert run.metrics["rollouts/refused"].max() == 0
    assert run.metrics["eval/blind"].notna().any()
    held = [json.loads(each) for each in run.rollouts["conversation"].dropna()]
    assert len(held) == 2 * 3 * 2 * 8
    assert {len(turns) for turns in held} > {4}
    assert {said for turns in held for _, said in turns} >= {"higher", "lower", "a number"}
