"""Whole runs with pictures: guppy-eye by default, exact resume, and one line where models and tasks do not fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from support.tiny_vision import make_vision_lm

from shoal.cli.main import main
from shoal.config.settings import Config
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.tasks import Tasks
from shoal_extras.gguf.families import family_of
from shoal_host.judge.questions import Questions

SMALL = """--nodes 2 --local 2 --peers 1 --num-generations 4 --threads 1 --evaluation.every 0 --eval-questions 1
    --eval-samples 1 --checkpoint-every 1 --workers 0 --quiet""".split()


def rollouts(folder: Path) -> list[dict[str, Any]]:
    return pd.read_parquet(folder / "rollouts.parquet").to_dict("records")


@pytest.mark.slow
def test_a_resumed_run_with_pictures_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole, stopped = tmp_path / "whole", tmp_path / "stopped"
    assert main(["run", "--suite", "pictures", *SMALL, "--rounds", "3", "--out", str(whole)]) == 0
    assert main(["run", "--suite", "pictures", *SMALL, "--rounds", "2", "--out", str(stopped)]) == 0
    assert main(["run", "--resume", str(stopped), "--quiet", "--rounds", "3"]) == 0
    assert rollouts(stopped) == rollouts(whole)
    assert all(row["prompt"].startswith("[picture ") for row in rollouts(whole))
    model = whole / "checkpoints" / "round-000003" / "node-2"
    capsys.readouterr()
    asked = ["--task", "count_dots", "--questions", "2", "--samples", "1", "--json"]
    assert main(["eval", str(model), *asked]) == 0
    assert list(json.loads(capsys.readouterr().out)["tasks"]) == ["count_dots"]


def test_the_suite_has_a_model_of_its_own() -> None:
    assert Config.model_validate({"tasks": {"suite": "pictures"}}).policy.model == ["guppy-eye"]
    asked = Config.model_validate({"tasks": {"suite": "pictures"}, "policy": {"model": ["guppy"]}})
    assert asked.policy.model == ["guppy"]


@pytest.mark.slow
def test_a_text_model_is_refused_before_the_first_round(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["run", "--suite", "pictures", "--model", "guppy", *SMALL, "--rounds", "1", "--out", str(out)]) == 2
    assert "shows pictures, and model 'guppy' reads text alone" in capsys.readouterr().err


def test_what_takes_text_alone_says_so() -> None:
    with pytest.raises(UserError, match="'llava', which is not written as GGUF"):
        family_of(make_vision_lm("llava").model.config, "eye")
    with pytest.raises(UserError, match="shows pictures, and a judge asks by text alone"):
        Questions(Tasks(TasksConfig(suite="pictures")), Identity.generate())
