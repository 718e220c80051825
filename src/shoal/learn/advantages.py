"""Advantages: how much better each completion is than what it is compared with."""

import math
from collections.abc import Sequence
from statistics import fmean, stdev

FLOOR = 1e-4
"""Added to standard deviations, as in TRL."""


def advantages(
    groups: Sequence[Sequence[float]],
    scale_rewards: str,
    baselines: Sequence[float | None] = (),
    shifts: Sequence[float] = (),
) -> list[list[float]]:
    """The advantages in every group of rewards of an update.

        advantages([[1, 0, 0, 0]], "none")      # [[0.75, -0.25, -0.25, -0.25]]

    `baselines`: for each group what its rewards are compared with, or None for their mean. With a given baseline the
    group's deviation is the root mean square from it, which is not 0 for equal rewards. `shifts`: added to each group's
    baseline before scaling (AsymRE, arXiv 2506.20520).
    `scale_rewards`: "none": r - mean(r) (Dr. GRPO, arXiv 2503.20783, eq. 3). "group" divides by the group's standard
    deviation (GRPO, arXiv 2402.03300, section 4.1.2), with n - 1 degrees of freedom and `FLOOR` added, as in TRL;
    "batch" by that of all groups' rewards (arXiv 2508.08221, as in TRL). Equal rewards give zeros.
    """
    everything = [reward for rewards in groups for reward in rewards]
    scaled = []
    for number, rewards in enumerate(groups):
        given = baselines[number] if baselines else None
        baseline = fmean(rewards) if given is None else given
        centred = [reward - baseline for reward in rewards]
        scope = {"group": rewards, "batch": everything}.get(scale_rewards, ())
        spread = stdev(scope) if len(scope) > 1 else 0.0
        deviation = spread + FLOOR if spread else 1.0
        if given is not None and scale_rewards == "group":
            deviation = math.sqrt(fmean(value**2 for value in centred)) + FLOOR
        shift = shifts[number] if shifts else 0.0
        scaled.append([(value - shift) / deviation for value in centred])
    return scaled
