"""DAPO (arXiv 2503.14476, eq. 8)."""

from shoal.learn.losses.base import Average, ClippedLoss


class DAPO(ClippedLoss):
    """The clipped loss, averaged over all tokens of the update."""

    average = Average.token
