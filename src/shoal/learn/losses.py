"""Policy-gradient losses: pure functions of log-probabilities.

Shape suffixes: T trained tokens of a micro-batch, its sequences one after another.
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
    """-min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) for each token.

    PPO's objective (arXiv 1707.06347, eq. 7) with the asymmetric clip of DAPO (arXiv 2503.14476, eq. 10); ratio is
    exp(logps - old_logps). With old_logps = logps (one step per batch) its value is -A, its gradient that of -A logps.
    """
    ratio_T = torch.exp(logps_T - old_logps_T)
    clipped_T = ratio_T.clamp(1 - epsilon, 1 + epsilon_high)
    return -torch.min(ratio_T * advantages_T, clipped_T * advantages_T)


def gspo(
    logps_T: torch.Tensor,
    old_logps_T: torch.Tensor,
    advantages_T: torch.Tensor,
    sequences_T: torch.Tensor,
    epsilon: float,
    epsilon_high: float,
) -> torch.Tensor:
    """The clipped surrogate with one ratio for each sequence: exp of the mean of logps - old_logps over its tokens, so
    that all of it is clipped or none (GSPO, arXiv 2507.18071, eqs. 5 and 7). Each token has its sequence's loss.

    `sequences_T`: which sequence a token is of, all of whose tokens must be here. TRL: `importance_sampling_level =
    "sequence"`. The ratio is close to 1, and the paper clips it at 1 - 3e-4 and 1 + 4e-4.
    """
    log_ratio_T = sequence_mean(logps_T - old_logps_T, sequences_T)
    return clipped_surrogate(log_ratio_T, torch.zeros_like(log_ratio_T), advantages_T, epsilon, epsilon_high)


def cispo(
    logps_T: torch.Tensor, old_logps_T: torch.Tensor, advantages_T: torch.Tensor, epsilon_high: float
) -> torch.Tensor:
    """-min(ratio, epsilon_high) A logps for each token, with no gradient through the ratio: what has gone far keeps a
    gradient, of bounded weight (CISPO, MiniMax-M1, arXiv 2506.13585, eqs. 4 and 5).

    As in TRL, and unlike elsewhere, `epsilon_high` is the greatest weight itself (the paper's 1 + epsilon_high), and
    there is no least one. 5.0 is usual (ScaleRL, arXiv 2510.13786).
    """
    weight_T = torch.exp(logps_T - old_logps_T).clamp(max=epsilon_high).detach()
    return -weight_T * advantages_T * logps_T


def policy_loss(
    loss_type: str,
    logps_T: torch.Tensor,
    old_logps_T: torch.Tensor,
    advantages_T: torch.Tensor,
    sequences_T: torch.Tensor,
    epsilon: float,
    epsilon_high: float,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """(loss_T, low_T, high_T): what `loss_type` makes of each token, and where it was clipped, below and above."""
    with torch.no_grad():
        log_ratio_T = logps_T - old_logps_T
        ratio_T = torch.exp(sequence_mean(log_ratio_T, sequences_T) if loss_type == "gspo" else log_ratio_T)
        low_T = (ratio_T < 1 - epsilon) & (advantages_T < 0) & (loss_type != "cispo")
        high_T = (ratio_T > (epsilon_high if loss_type == "cispo" else 1 + epsilon_high)) & (advantages_T > 0)
    if loss_type == "cispo":
        loss_T = cispo(logps_T, old_logps_T, advantages_T, epsilon_high)
    elif loss_type == "gspo":
        loss_T = gspo(logps_T, old_logps_T, advantages_T, sequences_T, epsilon, epsilon_high)
    else:
        loss_T = clipped_surrogate(logps_T, old_logps_T, advantages_T, epsilon, epsilon_high)
    return loss_T, low_T, high_T


def sequence_mean(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """For each token the mean of `values_T` over the tokens of its sequence."""
    counts_N = _sums(torch.ones_like(values_T), sequences_T)
    return (_sums(values_T, sequences_T) / counts_N.clamp(min=1))[sequences_T]


def sequence_sum(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """For each token the sum of `values_T` over the tokens of its sequence."""
    return _sums(values_T, sequences_T)[sequences_T]


def _sums(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """Of each sequence; there are no more of them than tokens."""
    return torch.zeros_like(values_T).index_add(0, sequences_T, values_T)


def kl_k3(logps_T: torch.Tensor, ref_logps_T: torch.Tensor) -> torch.Tensor:
    """exp(d) - d - 1 with d = ref_logps - logps: an unbiased, never negative estimate of KL(policy || reference) for
    each token (Schulman's k3; GRPO, arXiv 2402.03300, eq. 4)."""
    difference_T = ref_logps_T - logps_T
    return torch.exp(difference_T) - difference_T - 1


def token_weights(lengths: list[int], loss_type: str, max_completion_length: int) -> list[float]:
    """The weight of one token of each sequence, so that the loss is the weighted sum over all tokens.

    `lengths`: trained tokens of every sequence of the update, those without advantage included. With N sequences:
    `grpo`, `gspo` 1 / (N length), the mean of sequence means (arXiv 2402.03300, eq. 3; arXiv 2507.18071, eq. 5);
    `dr_grpo` 1 / (N max_completion_length), a constant (arXiv 2503.20783);
    `dapo`, `cispo` 1 / (sum of lengths), the mean over all tokens (arXiv 2503.14476, eq. 8; arXiv 2506.13585,
    eq. 4).

    As in TRL 1.16 without accumulation of gradients: an optimiser step is over all rollouts of a round here, and micro-
    batches only bound memory. So TRL's `bnpo` is `dapo` here.
    """
    count = max(len(lengths), 1)
    if loss_type in ("grpo", "gspo"):
        return [1 / (count * max(length, 1)) for length in lengths]
    if loss_type == "dr_grpo":
        return [1 / (count * max_completion_length)] * len(lengths)
    if loss_type in ("dapo", "cispo"):
        return [1 / max(sum(lengths), 1)] * len(lengths)
    raise ValueError(f"unknown loss_type {loss_type!r}")
