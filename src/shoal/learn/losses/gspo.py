"""GSPO (arXiv 2507.18071, eqs. 5 and 7)."""

import torch

from shoal.learn.losses.base import Average, ClippedLoss, Tokens, sequence_mean


class GSPO(ClippedLoss):
    """The clipped loss with one ratio for each completion: exp of the mean of logps - old_logps over its tokens. So all
    of it is clipped or none. TRL: `importance_sampling_level = "sequence"`."""

    average = Average.completion

    def __init__(self, epsilon: float = 3e-4, epsilon_high: float = 4e-4) -> None:
        """The paper's clip range: a mean over many tokens is close to 1."""
        super().__init__(epsilon, epsilon_high)

    def log_ratio(self, tokens: Tokens) -> torch.Tensor:
        return sequence_mean(super().log_ratio(tokens), tokens.sequences_T)
