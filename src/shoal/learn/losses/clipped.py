"""The clipped loss with the averages of GRPO, Dr. GRPO and DAPO, and with the ratio of GSPO."""

import torch

from shoal.learn.losses.base import Average, ClippedLoss, Tokens, sequence_mean


class GRPO(ClippedLoss):
    """DeepSeekMath, arXiv 2402.03300, eq. 3: over each completion first, so that a token of a short one counts more."""

    average = Average.completion


class DrGRPO(ClippedLoss):
    """arXiv 2503.20783: summed and divided by a constant: every token counts the same in every round."""

    average = Average.constant


class DAPO(ClippedLoss):
    """arXiv 2503.14476, eq. 8: averaged over all tokens of the update."""

    average = Average.token


class GSPO(ClippedLoss):
    """arXiv 2507.18071, eqs. 5 and 7: one ratio for each completion: exp of the mean of logps - old_logps over its
    tokens. So all of it is clipped or none. TRL: `importance_sampling_level = "sequence"`."""

    average = Average.completion

    def __init__(self, epsilon: float = 3e-4, epsilon_high: float = 4e-4) -> None:
        """The paper's clip range: a mean over many tokens is close to 1."""
        super().__init__(epsilon, epsilon_high)

    def log_ratio(self, tokens: Tokens) -> torch.Tensor:
        return sequence_mean(super().log_ratio(tokens), tokens.sequences_T)
