"""Advantages by comparison within a group. Those by a critic are in `critic`."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev

FLOOR = 1e-4
"""Added to standard deviations, as in TRL."""


def group_advantages(rewards: Sequence[float], scale_rewards: str = "none") -> list[float]:
    """How much better than its group each completion is.

    `none`: r - mean(r) (Dr. GRPO, arXiv 2503.20783, eq. 3). `group`: that over the group's standard deviation (GRPO,
    arXiv 2402.03300, section 4.1.2), with one degree of freedom taken off and 1e-4 added, as in TRL. Equal rewards give
    zeros.
    """
    return advantages([rewards], "group", scale_rewards)[0]


def leave_one_out(rewards: Sequence[float]) -> list[float]:
    """r less the mean of the others' rewards (RLOO, arXiv 2402.14740, as in TRL's `RLOOTrainer`): with n
    completions n / (n - 1) times r - mean(r), so that no completion is compared with itself. One alone gets 0."""
    n = len(rewards)
    if n < 2:
        return [0.0] * n
    mean = fmean(rewards)
    return [(reward - mean) * n / (n - 1) for reward in rewards]


def advantages(
    groups: Sequence[Sequence[float]],
    baseline: str,
    scale_rewards: str,
    against: Sequence[float | None] = (),
    shifts: Sequence[float] = (),
) -> list[list[float]]:
    """The advantages in every group of rewards of an update, against the `baseline` "group" (`group_advantages`) or
    "rloo" (`leave_one_out`).

    `against`: for each group what its rewards are compared with instead, or None. The deviation of the group is then
    that from there, the root of its mean square, which is known of equal rewards too. `shifts`: what is added to each
    group's baseline before scaling (AsymRE, arXiv 2506.20520).
    `scale_rewards`: "batch" divides by the standard deviation of all groups' rewards together (arXiv 2508.08221, as in
    TRL's GRPOTrainer; its RLOOTrainer divides by that of the advantages).
    """
    everything = [reward for rewards in groups for reward in rewards]
    scaled = []
    for number, rewards in enumerate(groups):
        given = against[number] if against else None
        if given is not None:
            centred = [reward - given for reward in rewards]
        elif baseline == "rloo":
            centred = leave_one_out(rewards)
        else:
            mean = fmean(rewards)
            centred = [reward - mean for reward in rewards]
        scope = {"group": rewards, "batch": everything}.get(scale_rewards, ())
        deviation = stdev(scope) + FLOOR if len(scope) > 1 else 1.0
        if given is not None and scale_rewards == "group":
            deviation = math.sqrt(fmean(value**2 for value in centred)) + FLOOR
        shift = shifts[number] if shifts else 0.0
        scaled.append([(value - shift) / deviation for value in centred])
    return scaled
