"""What a weight of peers' completions is, and the two of shoal.

Shape suffixes: T trained tokens of a micro-batch, its completions one after another.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch

from shoal.learn.losses.base import sequence_sum


@dataclass(frozen=True)
class PeerTokens:
    """Trained tokens, and how likely their completions are here and were where they were made.

    A peer's word is not taken for the latter. It is estimated by the mean likelihood of the node's own completions,
    which is exact for a peer that is as sure of its answers as this node.
    """

    logps_T: torch.Tensor
    """Log-probability (nats) of each token here when the round began."""
    gap_T: torch.Tensor
    """The nats for each token by which the token's completion is less likely here than own completions are."""
    advantages_T: torch.Tensor
    sequences_T: torch.Tensor
    """The number of each token's completion: 0, 1, ... All tokens of a completion are here."""


class Weight(ABC):
    """How much peers' rollouts count. See docs/extend/loss.md for one of your own."""

    baseline_shift: float
    """Added to the baseline of peers' rollouts (AsymRE, arXiv 2506.20520). Slightly negative: their successes count
    more than their failures. 0: no shift, as in the paper."""
    limit: float
    """Greatest mean gradient size of another maker's groups in an update, as a multiple of the running mean of own
    groups (`Average.gradient_size`). Above it, one factor scales down all groups of that maker. 0: no limit, as in the
    paper."""

    def __init__(self, baseline_shift: float = -0.1, limit: float = 1.0) -> None:
        if not -1 <= baseline_shift <= 1:
            raise ValueError("baseline_shift is a number from -1 to 1")
        if not 0 <= limit < math.inf:
            raise ValueError("limit is a number of at least 0")
        self.baseline_shift, self.limit = baseline_shift, limit

    @abstractmethod
    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        """The weight of each token (T,), by which its loss is multiplied: without gradient, and cut to [0, 1]."""


class NoWeight(Weight):
    """A peer's completion counts as an own one, as in the paper of swarm sampling (arXiv 2509.08721)."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        return torch.ones_like(tokens.logps_T)


class TOPR(Weight):
    """TOPR (arXiv 2503.14286): 1 with a positive advantage; min(1, likelihood ratio of the completion) with a negative
    one. Pushing down what is unlikely anyway has no bound, and costs likelihood elsewhere."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        ratio_T = sequence_sum(-tokens.gap_T, tokens.sequences_T).clamp(max=0).exp()
        return torch.where(tokens.advantages_T < 0, ratio_T, torch.ones_like(ratio_T))
