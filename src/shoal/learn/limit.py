"""What one maker contributes to an update: no more, for each of its groups, than a group of one's own.

The pull of a group is the sum of |A| over the tokens that are trained on, or over the completions where the loss takes
the mean of each. A group of a stranger may be half right and as long as allowed, and so have many times the pull of an
honest one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import fmean, median_low


def pull(advantages: Sequence[float], lengths: Sequence[int], loss_type: str) -> float:
    """The sum of |A| times the tokens of each completion; in `grpo` and `gspo`, which take the mean of each completion,
    times 1."""
    by_sequence = loss_type in ("grpo", "gspo")
    return sum(abs(A) * (length > 0 if by_sequence else length) for A, length in zip(advantages, lengths, strict=True))


def maker_scales(pulls: Sequence[tuple[str, float]], own: float | None, limit: float) -> dict[str, float]:
    """What the weights of each maker's tokens are multiplied by: min(1, limit * reference / mean pull of its groups).

    `pulls`: of each foreign group the maker and the pull. The reference is `own`, the mean pull of the node's own
    groups, which nobody else can move; until there is one it is the median of the makers' means, the lower one of two.
    Nothing is scaled up, and nothing at all with a `limit` of 0.
    """
    groups: dict[str, list[float]] = defaultdict(list)
    for maker, value in pulls:
        groups[maker].append(value)
    means = {maker: fmean(values) for maker, values in groups.items()}
    if not means or not limit:
        return dict.fromkeys(means, 1.0)
    most = limit * (median_low(means.values()) if own is None else own)
    return {maker: min(1.0, most / mean) if mean else 1.0 for maker, mean in means.items()}
