"""Settings of the rewards that models give."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest

from shoal.config.load import make_config
from shoal.config.rewards import ModelSection
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal_extras.rewards.sections import GenerativeRewardSection, ModelRewardSection


def read(*rewards: dict[str, Any]) -> Config:
    return make_config({"rewards": list(rewards)}, "file")


def test_they_come_back_from_a_file_as_they_went_in() -> None:
    linear = {"kind": "model", "name": "taste", "model": "m", "scale": "linear"}
    config = read(linear, {"kind": "generative", "model": "n", "votes": 2})
    assert config.rewards == [
        ModelRewardSection(kind="model", name="taste", model="m", scale="linear"),
        GenerativeRewardSection(kind="generative", model="n", votes=2),
    ]
    assert [one.model for one in config.rewards if isinstance(one, ModelSection)] == ["m", "n"]
    assert make_config(tomllib.loads(config.to_toml()), "file") == config
    assert config.model_dump(exclude_defaults=True)["rewards"][0] == linear


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ({"kind": "modle"}, "rewards.0: there is no kind of reward 'modle'; did you mean 'model'?"),
        ({"kind": "model"}, "rewards.0: a reward of kind 'model' needs 'model'"),
        ({"kind": "generative", "model": ""}, "rewards.0: a reward of kind 'generative' needs 'model'"),
        (
            {"kind": "generative", "model": "m", "vote": 3},
            "there is no setting 'rewards.0.vote' for a reward of kind 'generative'; did you mean 'votes'?",
        ),
        ({"kind": "model", "model": "m", "label": -1}, "rewards.0.label = -1: input should be greater than"),
    ],
)
def test_wrong_settings_get_one_line_that_says_what_would_be_right(reward: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(reward)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
