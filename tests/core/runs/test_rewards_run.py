"""Rewards in a run: from the settings to the figures."""

from __future__ import annotations

import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from support.figures import figures

from shoal.config.load import make_config
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.runs.build import Nodes
from shoal.runs.folder import RunFolder
from shoal.runs.run import Run
from shoal.runs.watcher import Watcher

pytestmark = pytest.mark.slow


def run(folder: Path, rewards: list[dict[str, Any]]) -> Nodes:
    config = Config.model_validate(
        {
            "rounds": 1,
            "rewards": rewards,
            "tasks": {"only": ["chain_sum"]},
            "policy": {"device": "cpu", "num_generations": 4},
            "round": {"nodes": 2, "local": 2, "peers": 1},
            "evaluation": {"questions": 1, "samples": 1},
        }
    )
    with RunFolder.create(folder, config.to_toml()) as kept, closing(Nodes(config)) as done:
        Run(done, kept, Watcher()).go(threading.Event())
    return done


def test_the_verifier_alone_is_the_verifier_as_it_was(tmp_path: Path) -> None:
    plain, named = run(tmp_path / "plain", []), run(tmp_path / "named", [{"kind": "verifier"}])
    assert plain.scoring is plain.verifier
    assert named.scoring is named.verifier
    assert figures(tmp_path / "plain") == figures(tmp_path / "named")


def test_a_function_rewards_and_the_verifier_evaluates(tmp_path: Path) -> None:
    rewards = [{"kind": "verifier"}, {"kind": "function", "name": "all", "function": "test_rewards_functions:few"}]
    done = run(tmp_path / "run", rewards)
    first, *_, last = figures(tmp_path / "run")
    assert last["reward/local/all"] == 1
    assert last["reward/local"] == pytest.approx(1 + last["reward/local/verifier"])
    assert first["eval/pass@1"] < 1
    assert done.rewards is not None


def test_mistakes_are_told() -> None:
    with pytest.raises(UserError, match="did you mean 'weight'"):
        make_config({"rewards": [{"kind": "verifier", "wieght": 1}]}, "x")
    with pytest.raises(UserError, match="needs 'function'"):
        make_config({"rewards": [{"kind": "function"}]}, "x")
