"""The loss functions: values and slopes worked out by hand."""

from __future__ import annotations

import math
import re

import pytest
import torch

from shoal.errors import UserError
from shoal.learn.losses import LOSSES, make_loss
from shoal.learn.losses.base import Average, Loss, TokenLosses, Tokens
from shoal.learn.weights import make_weight


def apply(
    loss_type: str,
    logps: torch.Tensor,
    old: torch.Tensor,
    advantages: torch.Tensor,
    sequences: torch.Tensor | None = None,
) -> TokenLosses:
    each = torch.arange(len(logps)) if sequences is None else sequences
    return make_loss(loss_type).token_losses(Tokens(logps, old, advantages, each))


def surrogate(ratio: float, advantage: float) -> tuple[float, float]:
    """Its value and its slope in the log-probability, at a given ratio."""
    logp = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    advantage_T = torch.tensor([advantage], dtype=torch.float64)
    loss = apply("dr_grpo", logp, torch.zeros(1, dtype=torch.float64), advantage_T).loss_T
    loss.sum().backward()
    assert logp.grad is not None
    return loss.item(), logp.grad.item()


@pytest.mark.parametrize(
    ("ratio", "advantage", "value", "slope"),
    [
        (1.0, 2.0, -2.0, -2.0),
        (1.0, -2.0, 2.0, 2.0),
        (1.27, 1.0, -1.27, -1.27),
        (1.3, 1.0, -1.28, 0.0),  # good and already likelier: no further
        (1.3, -1.0, 1.3, 1.3),  # bad and likelier: back, unclipped
        (0.81, -1.0, 0.81, 0.81),
        (0.7, -1.0, 0.8, 0.0),  # bad and already less likely: no further
        (0.7, 1.0, -0.7, -0.7),  # good and less likely: back, unclipped
        (0.7, 0.0, 0.0, 0.0),
    ],
)
def test_surrogate_clips_only_what_has_gone_far_enough(
    ratio: float, advantage: float, value: float, slope: float
) -> None:
    assert surrogate(ratio, advantage) == pytest.approx((value, slope))


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def test_gspo_clips_whole_sequences_by_the_geometric_mean_of_their_ratios() -> None:
    # ratios 2 and 1/2 make 1, 1.5 and 1.5 make 1.5, 0.9 alone is itself
    logps = doubles(2, 0.5, 1.5, 1.5, 0.9).log().requires_grad_()
    sequences = torch.tensor([0, 0, 1, 1, 2])
    loss = apply("gspo(epsilon=0.2, epsilon_high=0.28)", logps, doubles(*[0] * 5), doubles(3, 3, 1, 1, -1), sequences)
    loss = loss.loss_T
    torch.testing.assert_close(loss.detach(), doubles(-3, -3, -1.28, -1.28, 0.9))
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, doubles(-3, -3, 0, 0, 0.9))


def test_cispo_keeps_a_gradient_of_bounded_weight() -> None:
    ratios, old = doubles(0.1, 1.0, 4.0, 9.0, 9.0), doubles(-3, -2, -2, -3, -3)
    logps = (ratios.log() + old).requires_grad_()
    advantages = doubles(2, 1, 1, 1, -1)
    loss = apply("cispo", logps, old, advantages).loss_T
    weights = doubles(0.1, 1, 4, 5, 5)
    torch.testing.assert_close(loss, -weights * advantages * logps)
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, -weights * advantages)


def where(found: torch.Tensor | None) -> list[bool]:
    assert found is not None
    result: list[bool] = found.tolist()
    return result


def test_what_is_clipped_is_told() -> None:
    logps, advantages = doubles(0.5, 0.5, 1.5, 1.5, 1).log(), doubles(-1, 1, 1, -1, 1)
    old = doubles(*[0] * 5)
    for loss_type in ("dr_grpo", "gspo(epsilon=0.2, epsilon_high=0.28)"):
        found = apply(loss_type, logps, old, advantages)
        assert where(found.low_T) == [True, False, False, False, False]
        assert where(found.high_T) == [False, False, True, False, False]
    found = apply("cispo(epsilon_high=1.4)", logps, old, advantages)
    assert found.low_T is None
    assert where(found.high_T) == [False, False, True, False, False]
    one = torch.zeros(5, dtype=torch.long)  # all of one completion, of mean ratio (0.5 0.5 1.5 1.5)^(1/5)
    found = apply("gspo(epsilon=0.1, epsilon_high=0.28)", logps, old, advantages, one)
    assert where(found.low_T) == [True, False, False, True, False]
    assert not any(where(found.high_T))


def test_surrogate_at_the_old_policy_is_the_policy_gradient() -> None:
    logps = torch.tensor([-0.1, -2.0, -7.0], requires_grad=True)
    advantages = torch.tensor([0.5, -1.5, 0.0])
    loss = apply("grpo", logps, logps.detach(), advantages).loss_T
    torch.testing.assert_close(loss, -advantages)
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, -advantages)


def weights_of(loss_type: str, lengths: list[int]) -> list[float]:
    return make_loss(loss_type).average.weights(lengths, 10)


def test_weights_average_as_the_papers_do() -> None:
    lengths = [3, 1, 6]
    assert weights_of("grpo", lengths) == pytest.approx([1 / 9, 1 / 3, 1 / 18])
    assert weights_of("dr_grpo", lengths) == pytest.approx([1 / 30] * 3)
    assert weights_of("gspo", lengths) == weights_of("grpo", lengths)
    for loss_type in ("dapo", "cispo"):
        assert weights_of(loss_type, lengths) == pytest.approx([1 / 10] * 3)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_weights_of_empty_completions_are_finite(loss_type: str) -> None:
    assert all(map(math.isfinite, weights_of(loss_type, [0, 0])))
    assert weights_of(loss_type, []) == []


def test_empty_completions_count_in_the_mean_over_sequences() -> None:
    assert weights_of("grpo", [4, 0])[0] == pytest.approx(1 / 8)


# Losses and weights by name


class Mine:
    average = Average.token

    def __init__(self, scale: float = 1.0) -> None:
        self.scale = scale

    def token_losses(self, tokens: Tokens) -> TokenLosses:
        return TokenLosses(-self.scale * tokens.advantages_T * tokens.logps_T)


def test_a_loss_of_ones_own_is_found_by_its_name() -> None:
    found: Loss = make_loss("test_losses:Mine(scale=2)")
    assert isinstance(found, Mine)
    assert found.scale == 2


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("dapp", "there is no loss 'dapp'; did you mean 'dapo'?"),
        ("", "loss '' is not a name"),
        ("dapo)", "is not a name, nor name(parameter=value, ...)"),
        ("dapo(0.2)", r"loss 'dapo(0.2)': write its parameters as dapo(parameter=0.5, other=true)"),
        ("dapo(epsilom=0.2)", "cannot be made: "),
        ("dapo(epsilon='much')", "cannot be made: "),
        ("dapo(epsilon=-1)", "the clip range is above 0"),
        ("cispo(epsilon_high=0.28)", "would cut every ratio: it is the greatest ratio itself"),
        ("no_such_module:Mine", "cannot import 'no_such_module'"),
        ("test_losses:Nine", "test_losses has no 'Nine'"),
        ("test_losses:doubles", "loss 'test_losses:doubles' lacks average, token_losses"),
    ],
)
def test_what_is_wrong_with_a_loss_is_said(setting: str, said: str) -> None:
    with pytest.raises(UserError, match=re.escape(said)):
        make_loss(setting)


def test_so_it_is_with_a_weight() -> None:
    with pytest.raises(UserError, match=r"there is no weight 'tapr'; did you mean 'topr'"):
        make_weight("tapr")
