"""GRPO (DeepSeekMath, arXiv 2402.03300, eq. 3)."""

from shoal.learn.losses.base import Average, ClippedLoss


class GRPO(ClippedLoss):
    """The clipped loss, averaged over each completion first: a token of a short one counts more."""

    average = Average.completion
