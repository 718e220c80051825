"""Dr. GRPO (arXiv 2503.20783)."""

from shoal.learn.losses.base import Average, ClippedLoss


class DrGRPO(ClippedLoss):
    """The clipped loss, summed and divided by a constant: every token counts the same in every round."""

    average = Average.constant
