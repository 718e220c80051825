"""The loss functions: values and slopes worked out by hand."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shoal.learn.losses import (
    cispo,
    clipped_surrogate,
    gspo,
    kl_k3,
    policy_loss,
    token_weights,
)

LOW, HIGH = 0.2, 0.28


def surrogate(ratio: float, advantage: float) -> tuple[float, float]:
    """Its value and its slope in the log-probability, at a given ratio."""
    logp = torch.tensor([math.log(ratio)], dtype=torch.float64, requires_grad=True)
    advantage_T = torch.tensor([advantage], dtype=torch.float64)
    loss = clipped_surrogate(logp, torch.zeros(1, dtype=torch.float64), advantage_T, LOW, HIGH)
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
    loss = gspo(logps, doubles(*[0] * 5), doubles(3, 3, 1, 1, -1), sequences, LOW, HIGH)
    torch.testing.assert_close(loss.detach(), doubles(-3, -3, -1.28, -1.28, 0.9))
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, doubles(-3, -3, 0, 0, 0.9))


def test_cispo_keeps_a_gradient_of_bounded_weight() -> None:
    ratios, old = doubles(0.1, 1.0, 4.0, 9.0, 9.0), doubles(-3, -2, -2, -3, -3)
    logps = (ratios.log() + old).requires_grad_()
    advantages = doubles(2, 1, 1, 1, -1)
    loss = cispo(logps, old, advantages, 5.0)
    weights = doubles(0.1, 1, 4, 5, 5)
    torch.testing.assert_close(loss, -weights * advantages * logps)
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, -weights * advantages)


def test_what_is_clipped_is_told() -> None:
    logps, advantages = doubles(0.5, 0.5, 1.5, 1.5, 1).log(), doubles(-1, 1, 1, -1, 1)
    rest = (doubles(*[0] * 5), advantages, torch.tensor([0, 1, 2, 3, 4]))
    for loss_type in ("dr_grpo", "gspo"):
        _, low, high = policy_loss(loss_type, logps, *rest, LOW, HIGH)
        assert low.tolist() == [True, False, False, False, False]
        assert high.tolist() == [False, False, True, False, False]
    _, low, high = policy_loss("cispo", logps, *rest, LOW, 1.4)
    assert not low.any()
    assert high.tolist() == [False, False, True, False, False]
    one = torch.zeros(5, dtype=torch.long)  # all of one sequence, of mean ratio (0.5 0.5 1.5 1.5)^(1/5)
    _, low, high = policy_loss("gspo", logps, rest[0], advantages, one, 0.1, HIGH)
    assert low.tolist() == [True, False, False, True, False]
    assert not high.any()


def test_surrogate_at_the_old_policy_is_the_policy_gradient() -> None:
    logps = torch.tensor([-0.1, -2.0, -7.0], requires_grad=True)
    advantages = torch.tensor([0.5, -1.5, 0.0])
    loss = clipped_surrogate(logps, logps.detach(), advantages, LOW, HIGH)
    torch.testing.assert_close(loss, -advantages)
    loss.sum().backward()
    torch.testing.assert_close(logps.grad, -advantages)


@given(st.lists(st.floats(-20, 0), min_size=1, max_size=8), st.floats(-3, 3))
def test_kl_is_never_negative(logps: list[float], shift: float) -> None:
    logps_T = torch.tensor(logps, dtype=torch.float64)
    kl = kl_k3(logps_T, logps_T + shift)
    assert (kl > -1e-12).all()  # but for rounding
    torch.testing.assert_close(kl, torch.full_like(kl, math.exp(shift) - shift - 1))


def test_kl_is_unbiased() -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    reference = torch.tensor([0.2, 0.2, 0.6], dtype=torch.float64)
    expectation = (policy * kl_k3(policy.log(), reference.log())).sum()
    torch.testing.assert_close(expectation, (policy * (policy / reference).log()).sum())


def test_weights_average_as_the_papers_do() -> None:
    lengths = [3, 1, 6]
    assert token_weights(lengths, "grpo", 10) == pytest.approx([1 / 9, 1 / 3, 1 / 18])
    assert token_weights(lengths, "dr_grpo", 10) == pytest.approx([1 / 30] * 3)
    assert token_weights(lengths, "gspo", 10) == token_weights(lengths, "grpo", 10)
    for loss_type in ("dapo", "cispo"):
        assert token_weights(lengths, loss_type, 10) == pytest.approx([1 / 10] * 3)


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_weights_of_empty_completions_are_finite(loss_type: str) -> None:
    assert all(map(math.isfinite, token_weights([0, 0], loss_type, 10)))
    assert token_weights([], loss_type, 10) == []


def test_empty_completions_count_in_the_mean_over_sequences() -> None:
    assert token_weights([4, 0], "grpo", 10)[0] == pytest.approx(1 / 8)


def test_unknown_loss_is_named() -> None:
    with pytest.raises(ValueError, match="sapo"):
        token_weights([1], "sapo", 10)
