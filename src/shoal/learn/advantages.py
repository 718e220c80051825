"""Advantages within a group."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, stdev


def group_advantages(rewards: Sequence[float], scale_rewards: str = "none") -> list[float]:
    """How much better than its group each completion is.

    `none`: r - mean(r) (Dr. GRPO, arXiv 2503.20783, eq. 3). `group`: that over the group's standard deviation (GRPO,
    arXiv 2402.03300, section 4.1.2), with one degree of freedom taken off and 1e-4 added, as in TRL. Equal rewards give
    zeros.
    """
    mean = fmean(rewards)
    centred = [reward - mean for reward in rewards]
    if scale_rewards == "none" or len(centred) < 2:
        return centred
    deviation = stdev(rewards) + 1e-4
    return [value / deviation for value in centred]
