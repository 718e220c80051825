"""The clipped loss with the averages of GRPO, Dr. GRPO and DAPO."""

from shoal.learn.losses.base import Average, ClippedLoss


class GRPO(ClippedLoss):
    """DeepSeekMath, arXiv 2402.03300, eq. 3: over each completion first, so that a token of a short one counts more."""

    average = Average.completion


class DrGRPO(ClippedLoss):
    """arXiv 2503.20783: summed and divided by a constant: every token counts the same in every round."""

    average = Average.constant


class DAPO(ClippedLoss):
    """arXiv 2503.14476, eq. 8: averaged over all tokens of the update."""

    average = Average.token
