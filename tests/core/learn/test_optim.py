"""Optimisers: each learns, keeps states of the size it says, and goes on from a checkpoint as if nothing had been."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from tiny import CPU, assert_same, make_policy, make_scored, weights

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.learner import GRPOLearner
from shoal.learn.optim import STATE_BYTES, make_optimizer
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Scored

OPTIMISERS = ("adamw", "adafactor")


def rollouts() -> list[Scored]:
    return [make_scored("2 + 2 =", [[5, 9, 1], [7, 1], [30, 31, 32, 33]], [1, 0, 0.5])]


def square(optim: str, size: int) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """A matrix to train, and what trains it."""
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.randn(size, size))
    frozen = torch.nn.Parameter(torch.ones(3), requires_grad=False)
    return matrix, make_optimizer([matrix, frozen], optim, 1e-3)


def step(matrix: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(1)
    matrix.grad = torch.randn_like(matrix)
    optimizer.step()


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.nbytes for value in states if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("optim", OPTIMISERS)
def test_states_are_as_large_as_told_and_steps_as_the_learning_rate_says(optim: str) -> None:
    matrix, optimizer = square(optim, 512)
    before = matrix.detach().clone()
    step(matrix, optimizer)
    assert len(optimizer.state) == 1  # what is frozen has none
    assert state_bytes(optimizer) / matrix.numel() == pytest.approx(STATE_BYTES[optim], abs=0.1)
    moved = (matrix.detach() - before).square().mean().sqrt()
    assert float(moved) == pytest.approx(1e-3, rel=0.1)  # one learning rate does for all


@pytest.mark.parametrize("optim", OPTIMISERS)
def test_a_resumed_learner_goes_on_as_if_nothing_had_happened(optim: str, tmp_path: Path) -> None:
    policy = make_policy()
    config = LearnerConfig(optim=optim)
    learner = GRPOLearner(policy, config, PeersConfig(), 1e-2)
    start = weights(policy.lm.model)
    learner.update(rollouts(), seed=1)
    assert any(not torch.equal(start[name], now) for name, now in weights(policy.lm.model).items())
    policy.save(tmp_path)
    learner.save(tmp_path)
    resumed = LanguagePolicy(load(str(tmp_path), CPU.device), Sampling(max_completion_length=12), CPU)
    again = GRPOLearner(resumed, config, PeersConfig(), 1e-2)
    again.load(tmp_path)
    assert learner.update(rollouts(), seed=2) == again.update(rollouts(), seed=2)
    assert_same(weights(resumed.lm.model), weights(policy.lm.model), 0)
