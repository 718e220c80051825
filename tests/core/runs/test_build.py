"""Nodes are built as the settings say."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.policy.language import LanguagePolicy
from shoal.runs.build import Nodes, checkpoint_bytes


def test_a_checkpoint_has_weights_and_the_optimizer_s_states(tiny_policy: Callable[..., LanguagePolicy]) -> None:
    policy = tiny_policy()
    weights = sum(weight.numel() for weight in policy.lm.model.parameters())
    config = Config().resolved()
    assert checkpoint_bytes([policy, policy], config) == 2 * 4 * 3 * weights, "float32, and AdamW has two moments"


def test_a_run_whose_nodes_answer_nothing_is_refused() -> None:
    config = Config.model_validate({"round": {"questions_per_round": 0}})
    with pytest.raises(UserError, match="--questions-per-round 0"):
        Nodes(config)


def test_a_mistyped_reward_is_reported_before_a_model_is_loaded() -> None:
    config = Config.model_validate(
        {"policy": {"model": ["/no/such/model"]}, "rewards": [{"kind": "function", "function": "math:rigt"}]}
    )
    with pytest.raises(UserError, match="math has no 'rigt'"):
        Nodes(config)
