"""What a loss is: a pure function of log-probabilities, and how its terms are averaged over an update.

Shape suffixes: T trained tokens of a micro-batch, its completions one after another.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

import torch


@dataclass(frozen=True)
class Tokens:
    """The trained tokens of a micro-batch. Prompts and padding are not among them, so a loss needs no mask."""

    logps_T: torch.Tensor
    """Log-probabilities (nats) now. The gradient goes through these only."""
    old_logps_T: torch.Tensor
    """Log-probabilities when the round began. Equal to `logps_T` in the first step of an update."""
    advantages_T: torch.Tensor
    """The advantage of each token's completion."""
    sequences_T: torch.Tensor
    """The number of each token's completion: 0, 1, ... All tokens of a completion are here."""


@dataclass(frozen=True)
class TokenLosses:
    """What a loss makes of each token."""

    loss_T: torch.Tensor
    low_T: torch.Tensor | None = None
    """True where the ratio was clipped from below, for the metrics; None: nowhere."""
    high_T: torch.Tensor | None = None
    """True where it was clipped from above."""


class Average(StrEnum):
    """How an update averages token losses. Its N completions include those without advantage.

    As in TRL 1.16 without accumulation of gradients: an optimizer step is over all rollouts of a round, and micro-
    batches only bound memory. So TRL's `bnpo` is `dapo` here.
    """

    completion = "completion"
    """Over the tokens of each completion, then over completions."""
    constant = "constant"
    """The sum over all tokens, divided by N times the longest completion allowed."""
    token = "token"
    """Over all tokens."""

    def weights(self, lengths: Sequence[int], longest: int) -> list[float]:
        """The weight of one token of each completion, so that the loss of the update is a weighted sum over tokens.
        `lengths`: tokens of all its completions. `longest`: the most that are allowed."""
        count = max(len(lengths), 1)
        match self:
            case Average.completion:
                return [1 / (count * max(length, 1)) for length in lengths]
            case Average.constant:
                return [1 / (count * longest)] * len(lengths)
            case Average.token:
                return [1 / max(sum(lengths), 1)] * len(lengths)

    def gradient_size(self, advantages: Sequence[float], lengths: Sequence[int]) -> float:
        """The size of a group's gradient: the sum of |advantage| over tokens, or over completions, as they count."""
        counts = [length > 0 for length in lengths] if self is Average.completion else lengths
        return sum(abs(A) * count for A, count in zip(advantages, counts, strict=True))


class Loss(Protocol):
    """A loss. See docs/extend/loss.md for one of your own."""

    average: Average

    def token_losses(self, tokens: Tokens) -> TokenLosses:
        """The loss of each token (T,). Its gradient alone changes the policy."""
        ...


class ClippedLoss:
    """PPO's objective (arXiv 1707.06347, eq. 7) with the asymmetric clip of DAPO (arXiv 2503.14476, eq. 10).

    For each token -min(ratio A, clip(ratio, 1 - epsilon, 1 + epsilon_high) A) with ratio = exp(logps - old_logps). In
    the first step its value is -A, its gradient that of -A logps.
    """

    average: Average

    def __init__(self, epsilon: float = 0.2, epsilon_high: float = 0.28) -> None:
        if not (epsilon > 0 and epsilon_high > 0):
            raise ValueError(f"the clip range is above 0: epsilon = {epsilon}, epsilon_high = {epsilon_high}")
        self.epsilon, self.epsilon_high = epsilon, epsilon_high

    def log_ratio(self, tokens: Tokens) -> torch.Tensor:
        return tokens.logps_T - tokens.old_logps_T

    def token_losses(self, tokens: Tokens) -> TokenLosses:
        ratio_T, advantages_T = torch.exp(self.log_ratio(tokens)), tokens.advantages_T
        clipped_T = ratio_T.clamp(1 - self.epsilon, 1 + self.epsilon_high)
        return TokenLosses(
            -torch.min(ratio_T * advantages_T, clipped_T * advantages_T),
            low_T=(ratio_T < 1 - self.epsilon) & (advantages_T < 0),
            high_T=(ratio_T > 1 + self.epsilon_high) & (advantages_T > 0),
        )


def sequence_mean(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """For each token the mean of `values_T` over the tokens of its completion."""
    counts_N = _sums(torch.ones_like(values_T), sequences_T)
    return (_sums(values_T, sequences_T) / counts_N.clamp(min=1))[sequences_T]


def sequence_sum(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """For each token the sum of `values_T` over the tokens of its completion."""
    return _sums(values_T, sequences_T)[sequences_T]


def _sums(values_T: torch.Tensor, sequences_T: torch.Tensor) -> torch.Tensor:
    """Of each completion; there are no more of them than tokens."""
    return torch.zeros_like(values_T).index_add(0, sequences_T, values_T)
