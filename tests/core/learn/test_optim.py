"""Optimisers: each learns, keeps states of the size it says, and goes on from a checkpoint as if nothing had been."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from tiny import CPU, assert_same, make_policy, make_scored, weights

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.learn.optim import STATE_BYTES, make_optimizer
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Scored

CUDA = torch.device("cuda", 0)
ON_CPU = ("adamw", "adamw_bf16", "adafactor")


def rollouts() -> list[Scored]:
    return [make_scored("2 + 2 =", [[5, 9, 1], [7, 1], [30, 31, 32, 33]], [1, 0, 0.5])]


def square(optim: str, device: torch.device, size: int) -> tuple[torch.Tensor, torch.optim.Optimizer]:
    """A matrix to train, and what trains it."""
    torch.manual_seed(0)
    matrix = torch.nn.Parameter(torch.randn(size, size, device=device))
    frozen = torch.nn.Parameter(torch.ones(3, device=device), requires_grad=False)
    return matrix, make_optimizer([matrix, frozen], optim, 1e-3, device)


def step(matrix: torch.Tensor, optimizer: torch.optim.Optimizer) -> None:
    torch.manual_seed(1)
    matrix.grad = torch.randn_like(matrix)
    optimizer.step()


def state_bytes(optimizer: torch.optim.Optimizer) -> int:
    states = [value for state in optimizer.state.values() for value in state.values()]
    return sum(value.nbytes for value in states if isinstance(value, torch.Tensor))


def check(optim: str, device: torch.device) -> None:
    matrix, optimizer = square(optim, device, 512)
    before = matrix.detach().clone()
    step(matrix, optimizer)
    assert len(optimizer.state) == 1  # what is frozen has none
    assert state_bytes(optimizer) / matrix.numel() == pytest.approx(STATE_BYTES[optim], abs=0.1)
    moved = (matrix.detach() - before).square().mean().sqrt()
    assert float(moved) == pytest.approx(1e-3, rel=0.1)  # one learning rate does for all


@pytest.mark.parametrize("optim", ON_CPU)
def test_states_are_as_large_as_told_and_steps_as_the_learning_rate_says(optim: str) -> None:
    check(optim, CPU.device)


def test_a_first_moment_that_rests_in_bfloat16_changes_steps_by_far_less_than_chance_does() -> None:
    """Hundreds of noisy steps down a valley: both end at the same place."""

    def descend(optim: str) -> torch.Tensor:
        torch.manual_seed(0)
        matrix = torch.nn.Parameter(torch.ones(64, 64))
        optimizer = make_optimizer([matrix], optim, 1e-2, CPU.device)
        for _ in range(300):
            matrix.grad = matrix.detach() + torch.randn_like(matrix)
            optimizer.step()
        return matrix.detach()

    exact, rounded, start = descend("adamw"), descend("adamw_bf16"), torch.ones(64, 64)
    assert (exact - rounded).norm() < 0.01 * (exact - start).norm()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_adamw_of_8_bits_on_a_gpu() -> None:
    pytest.importorskip("bitsandbytes")
    check("adamw_8bit", CUDA)


def check_resumed(optim: str, placement: Placement, folder: Path) -> None:
    policy = make_policy()
    policy.placement = placement
    policy.lm.model.to(placement.device)
    config = LearnerConfig(optim=optim)
    learner = GRPOLearner(policy, config, PeersConfig(), 1e-2)
    start = weights(policy.lm.model)
    learner.update(rollouts(), seed=1)
    assert any(not torch.equal(start[name], now) for name, now in weights(policy.lm.model).items())
    policy.save(folder)
    learner.save(folder)
    resumed = LanguagePolicy(load(str(folder), placement.device), Sampling(max_completion_length=12), placement)
    again = GRPOLearner(resumed, config, PeersConfig(), 1e-2)
    again.load(folder)
    assert learner.update(rollouts(), seed=2) == again.update(rollouts(), seed=2)
    assert_same(weights(resumed.lm.model), weights(policy.lm.model), 0)


@pytest.mark.parametrize("optim", ON_CPU)
def test_a_resumed_learner_goes_on_as_if_nothing_had_happened(optim: str, tmp_path: Path) -> None:
    check_resumed(optim, CPU, tmp_path)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA")
def test_a_resumed_learner_of_8_bits_goes_on_as_if_nothing_had_happened(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes")
    check_resumed("adamw_8bit", Placement(CUDA, torch.float32), tmp_path)


def test_without_a_gpu_8_bits_are_refused_in_one_line() -> None:
    with pytest.raises(UserError, match=r"^--optim adamw_8bit needs a CUDA device, and this is cpu: .*$"):
        square("adamw_8bit", CPU.device, 8)


def test_without_bitsandbytes_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes", None)
    with pytest.raises(UserError, match=r"pip install 'shoal\[8bit\]'$"):
        make_optimizer([], "adamw_8bit", 1e-3, CUDA)


def test_8_bits_are_those_of_bitsandbytes(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: dict[str, Any] = {}

    def adamw(parameters: list[torch.nn.Parameter], **settings: Any) -> torch.optim.Optimizer:
        asked.update(settings, parameters=parameters)
        return torch.optim.SGD(parameters, lr=0.1)

    monkeypatch.setitem(sys.modules, "bitsandbytes", SimpleNamespace(optim=SimpleNamespace(AdamW8bit=adamw)))
    trained, frozen = (torch.nn.Parameter(torch.ones(2), requires_grad=needed) for needed in (True, False))
    make_optimizer([trained, frozen], "adamw_8bit", 1e-3, CUDA)
    assert asked == {"lr": 1e-3, "weight_decay": 0.0, "parameters": [trained]}
