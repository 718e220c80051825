"""The losses are those of TRL's GRPOTrainer: its own `_compute_loss` is called on the same batch.

TRL is for these tests alone. Made with TRL 1.16.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from test_learner import LOSSES, ByHand, make_learner, perturb, record, rollouts
from tiny import EXPERTS, assert_same, make_policy, weights

from shoal.config.sections import LearnerConfig
from shoal.learn.losses import make_loss
from shoal.learn.losses.base import Tokens
from shoal.rollout import Scored

grpo_trainer = pytest.importorskip("trl.trainer.grpo_trainer")

LONGEST = 12
TOLERANCE = 1e-5


def trl_loss(
    config: LearnerConfig,
    logps_BT: torch.Tensor,
    old_BT: torch.Tensor,
    advantages_B: torch.Tensor,
    mask_BT: torch.Tensor,
    num_items: float,
) -> tuple[torch.Tensor, dict[str, list[float]]]:
    """What GRPOTrainer would minimise in the optimiser step of a batch of `num_items` tokens, without accumulation of
    gradients, and the metrics it would log."""
    kind, loss = config.loss_type.partition("(")[0], make_loss(config.loss_type)
    trainer = grpo_trainer.GRPOTrainer.__new__(grpo_trainer.GRPOTrainer)
    trainer.__dict__.update(
        _get_per_token_logps_and_entropies=lambda *_, **__: (logps_BT, torch.zeros_like(logps_BT), None),
        _entropy_bonus_enabled=False,
        _metrics={"train": defaultdict(list)},
        accelerator=SimpleNamespace(
            num_processes=1, gather=lambda x: x, gather_for_metrics=lambda x: x, reduce=lambda x, reduction: x
        ),
        args=SimpleNamespace(delta=None, use_bias_correction_kl=False, steps_per_generation=1),
        aux_loss_enabled=False,
        beta=0.0,
        current_gradient_accumulation_steps=1,
        epsilon_high=getattr(loss, "epsilon_high"),  # noqa: B009 (no part of the protocol)
        epsilon_low=getattr(loss, "epsilon", 0.2),
        importance_sampling_level="sequence" if kind == "gspo" else "token",
        loss_type="grpo" if kind == "gspo" else kind,
        max_completion_length=LONGEST,
        model=SimpleNamespace(training=True),
        off_policy_mask_threshold=None,
        top_entropy_quantile=1.0,
        use_vllm=False,
    )
    B, T = mask_BT.shape
    inputs = {
        "prompt_ids": torch.zeros(B, 1, dtype=torch.long),
        "prompt_mask": torch.ones(B, 1, dtype=torch.long),
        "completion_ids": torch.zeros(B, T, dtype=torch.long),
        "completion_mask": mask_BT,
        "advantages": advantages_B,
        "old_per_token_logps": old_BT,
        "num_items_in_batch": torch.tensor(num_items),
    }
    return trainer._compute_loss(None, inputs), trainer._metrics["train"]


def config_of(loss_type: str, **settings: Any) -> LearnerConfig:
    return LearnerConfig(loss_type=loss_type, **settings)


@pytest.mark.parametrize("loss_type", LOSSES)
@pytest.mark.parametrize("seed", range(5))
def test_loss_and_slope_are_trls_on_any_log_probs(loss_type: str, seed: int) -> None:
    config = config_of(loss_type)
    draw = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, LONGEST + 1, (16,), generator=draw)
    lengths[3] = 0  # an empty answer
    mask_BT = (torch.arange(LONGEST) < lengths[:, None]).long()

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=draw, dtype=torch.float64)

    logps_BT = -normal(16, LONGEST).abs() - 0.1
    old_BT = logps_BT + 0.3 * normal(16, LONGEST)
    advantages_B, num_items = normal(16), float(lengths.sum())

    theirs = logps_BT.clone().requires_grad_()
    expected, metrics = trl_loss(config, theirs, old_BT, advantages_B, mask_BT, num_items)
    expected.backward()

    ours = logps_BT.clone().requires_grad_()
    keep, sequences_BT = mask_BT.bool(), torch.arange(16)[:, None].expand_as(mask_BT)
    loss_of = make_loss(loss_type)
    advantages_T = advantages_B[:, None].expand_as(ours)[keep]
    found = loss_of.token_losses(Tokens(ours[keep], old_BT[keep], advantages_T, sequences_BT[keep]))
    weight_of = torch.tensor(loss_of.average.weights(lengths.tolist(), LONGEST)).double()
    loss = (found.loss_T * weight_of[sequences_BT[keep]]).sum()
    loss.backward()
    assert loss.item() == pytest.approx(expected.item(), rel=TOLERANCE, abs=TOLERANCE / 10)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=TOLERANCE, atol=TOLERANCE / 100)

    assert found.high_T is not None
    if loss_type.startswith("cispo"):
        assert found.high_T.double().mean().item() == pytest.approx(metrics["cispo_clip_ratio"][0], abs=TOLERANCE)
    elif found.low_T is not None and not loss_type.startswith("gspo"):  # whose mean TRL takes over sequences
        assert found.low_T.double().mean().item() == pytest.approx(metrics["clip_ratio/low_mean"][0], abs=TOLERANCE)
        assert found.high_T.double().mean().item() == pytest.approx(metrics["clip_ratio/high_mean"][0], abs=TOLERANCE)
    assert found.high_T.any()


class ByTRL(ByHand):
    """The update with TRL's loss of each step."""

    def loss(self, order: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        logps = [self.logps(self.model, s, c) for s in order for c in s.rollout.completions]
        advantages = torch.cat([self.advantages(s) for s in order])
        mask = padded([torch.ones(len(logp), dtype=torch.long) for logp in logps])
        rest = (padded(old), advantages, mask, float(mask.sum()))
        return trl_loss(self.config, padded(logps), *rest)[0]


def padded(rows: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.nn.utils.rnn.pad_sequence(list(rows), batch_first=True)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_the_whole_update_is_that_of_trls_loss(loss_type: str) -> None:
    """Every gradient of three steps, of a model whose arithmetic is all float64 (gpt2)."""
    config = config_of(loss_type, num_iterations=3, scale_rewards="group")
    policy = make_policy("gpt2", double=True, max_completion_length=LONGEST)
    learner = make_learner(policy, 0.1, sgd=True, **config.model_dump(exclude={"learning_rate"}))
    theirs = ByTRL(policy, config, torch.optim.SGD, 0.1)
    perturb(policy.lm.model, theirs.model)
    found = record(learner)
    metrics = learner.update(rollouts(), seed=3).metrics
    theirs.update(rollouts(), seed=3)
    for actual, expected in zip(found, theirs.gradients, strict=True):
        assert_same(actual, expected, TOLERANCE)
    assert_same(weights(learner.model), weights(theirs.model), TOLERANCE)
    assert metrics["clip_ratio/high_mean"] > 0


@pytest.mark.parametrize("architecture", EXPERTS)
def test_the_update_of_a_mixture_of_experts_is_that_of_trls_loss(architecture: str) -> None:
    config = config_of("dr_grpo")
    policy = make_policy(architecture, double=True, max_completion_length=LONGEST)
    learner = make_learner(policy, sgd=True, **config.model_dump(exclude={"learning_rate"}))
    theirs = ByTRL(policy, config, torch.optim.SGD, 1e-2)
    perturb(policy.lm.model, theirs.model)
    found = record(learner)
    learner.update(rollouts(), seed=3)
    theirs.update(rollouts(), seed=3)
    for actual, expected in zip(found, theirs.gradients, strict=True):
        assert_same(actual, expected, TOLERANCE)
