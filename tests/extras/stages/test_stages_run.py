"""Whole runs with stages: nodes ask about each other's answers, and go on where they stopped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from servers import serving

import shoal
from shoal.errors import UserError

pytestmark = pytest.mark.slow

SETTINGS: dict[str, Any] = {
    "tasks": [{"name": "lengths:Short"}],
    "stages": ["critique", "decide"],
    "nodes": 2,
    "local": 6,
    "peers": 2,
    "num_generations": 4,
    "max_completion_length": 4,
    "threads": 1,
    "device": "cpu",
    "eval_questions": 2,
    "eval_samples": 1,
    "checkpoint_every": 1,
}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_resumed_run_asks_about_the_same_answers(tmp_path: Path, workers: int) -> None:
    whole = shoal.run(**SETTINGS, workers=workers, rounds=4, out=tmp_path / "whole")
    stopped = shoal.run(**SETTINGS, workers=workers, rounds=2, out=tmp_path / "stopped")
    shoal.run(resume=stopped.folder, rounds=4, allow_code=True)
    questions = [
        frame[["node", "task", "question", "completion", "reward"]] for frame in (whole.rollouts, stopped.rollouts)
    ]
    assert questions[0].equals(questions[1])
    asked = whole.rollouts.groupby("node")["task"].agg(set)
    assert all("critique" in tasks for tasks in asked)
    assert whole.rollouts.query("task == 'critique'").question.str.contains("Others answered:\nA:\n> ").all()


def test_an_endpoint_is_not_asked_what_strangers_wrote(tmp_path: Path) -> None:
    """No tokenizer here keeps their text from becoming control tokens."""
    with serving() as server, pytest.raises(UserError, match="leave it out with an endpoint"):
        shoal.run(**SETTINGS, model=["guppy", server.url], rounds=1, out=tmp_path / "run")
