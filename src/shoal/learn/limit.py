"""A limit on what one maker contributes to an update: its groups count no more, on average, than own ones.

The size of a group's gradient is taken to be the sum of |advantage| over its trained tokens, or over its completions
where the loss takes the mean of each. A hostile group can be half right and as long as allowed. Its gradient is
then many times as large as an honest one's.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median_low


def gradient_size(advantages: Sequence[float], lengths: Sequence[int], loss_type: str) -> float:
    """The sum of |A| times the tokens of each completion; with `grpo` and `gspo`, which take the mean of each
    completion, times 1."""
    by_sequence = loss_type in ("grpo", "gspo")
    return sum(abs(A) * (length > 0 if by_sequence else length) for A, length in zip(advantages, lengths, strict=True))


def maker_scales(sizes: Sequence[tuple[str, float]], own: float | None, limit: float) -> dict[str, float]:
    """A factor for the weights of each maker's tokens: min(1, limit * reference / mean size of its groups).

    `sizes`: maker and `gradient_size` of each foreign group. The reference is `own`, the mean size of the node's own
    groups, which nobody else can change; while it is None, the lower median of the makers' means. Nothing is scaled up,
    and with a `limit` of 0 nothing is scaled.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for maker, size in sizes:
        groups[maker].append(size)
    means = {maker: fmean(of_maker) for maker, of_maker in groups.items()}
    if not means or not limit:
        return dict.fromkeys(means, 1.0)
    most = limit * (median_low(means.values()) if own is None else own)
    return {maker: min(1.0, most / mean) if mean else 1.0 for maker, mean in means.items()}
