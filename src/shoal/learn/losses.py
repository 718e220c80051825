"""Policy-gradient losses: pure functions of log-probabilities.

Shape suffixes: T tokens that are trained, of all sequences of an update one after another.
"""

from __future__ import annotations

import torch


def clipped_surrogate(
    logps_T: torch.Tensor,
    old_logps_T: torch.Tensor,
    advantages_T: torch.Tensor,
    epsilon: float,
    epsilon_high: float,
) -> torch.Tensor:
    """-min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) for each token, in nats.

    PPO's objective (arXiv 1707.06347, eq. 7) with the asymmetric clip of DAPO (arXiv 2503.14476, eq. 10); ratio is
    exp(logps - old_logps). With old_logps = logps (one step per batch) its value is -A, its gradient that of -A logps.
    """
    ratio_T = torch.exp(logps_T - old_logps_T)
    clipped_T = ratio_T.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.min(ratio_T * advantages_T, clipped_T * advantages_T)


def kl_k3(logps_T: torch.Tensor, ref_logps_T: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = ref_logps - logps: an unbiased, never negative estimate of KL(policy || reference) for
    each token (Schulman's k3; GRPO, arXiv 2402.03300, eq. 4)."""
    difference_T = ref_logps_T - logps_T
    return torch.exp(difference_T) - difference_T - 1


def token_weights(lengths: list[int], loss_type: str, max_completion_length: int) -> list[float]:
    """What one token of each sequence counts, so that the loss is the weighted sum over all tokens.

    `lengths`: trained tokens of every sequence of the update, those without advantage included. With N sequences:
    `grpo` 1 / (N length), the mean of sequence means (arXiv 2402.03300, eq. 3);
    `dr_grpo` 1 / (N max_completion_length), a constant (arXiv 2503.20783);
    `dapo` 1 / (sum of lengths), the mean over tokens (arXiv 2503.14476, eq. 8). As in TRL.
    """
    count = max(len(lengths), 1)
    if loss_type == "grpo":
        return [1 / (count * max(length, 1)) for length in lengths]
    if loss_type == "dr_grpo":
        return [1 / (count * max_completion_length)] * len(lengths)
    if loss_type == "dapo":
        return [1 / max(sum(lengths), 1)] * len(lengths)
    raise ValueError(f"unknown loss_type {loss_type!r}")
