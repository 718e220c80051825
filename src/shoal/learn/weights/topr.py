"""TOPR (arXiv 2503.14286)."""

import torch

from shoal.learn.losses.base import sequence_sum
from shoal.learn.weights.base import PeerTokens, Weight


class TOPR(Weight):
    """1 with a positive advantage; min(1, likelihood ratio of the completion) with a negative one. Pushing down what is
    unlikely anyway has no bound, and costs likelihood elsewhere."""

    def weights(self, tokens: PeerTokens) -> torch.Tensor:
        ratio_T = sequence_sum(-tokens.gap_T, tokens.sequences_T).clamp(max=0).exp()
        return torch.where(tokens.advantages_T < 0, ratio_T, torch.ones_like(ratio_T))
