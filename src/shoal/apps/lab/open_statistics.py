"""Statistics of an open swarm (`open_swarm`): who stays, how much those who stay count, and p.

    weights_NK = inverse(staying(scores_NK, swarm_N, model_N), swarm_N, model_N)
    p_K = adjusted_p(values_NK, weights_NK, swarm_N, model_N, permutations=2000, seed=0)

Shapes: N nodes, K steps, P permutations, B strata of mean scores. `swarm_N` says who is in the swarm, `model_N` has the
number of each node's model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from shoal.apps.lab.intervals import Array

Sides = NDArray[np.bool_]
Models = NDArray[np.int64]

STRATA: Final = 5
"""Strata of mean scores so far, with fixed bounds: the median of those who are left rises as the poor leave."""
WINDOW: Final = 5
"""Steps before and after that are counted with a step: how readily all leave at one step does not matter."""
PRIOR: Final = 2.0
"""Nodes, leaving as all in the window did, that are added to each stratum: a few nodes say little."""
HEAVIEST: Final = 20.0
"""The most that a node can count for, in average nodes that stayed."""
LEAST: Final = 1e-3
"""The least variance of a side, as a share of that of both sides together: it may be zero by chance."""
BATCH: Final = 100
"""Permutations at once, which bounds memory."""


def staying(scores_NK: Array, swarm_N: Sides, model_N: Models) -> Array:
    """The probability that each node has stayed until each step; NaN where it is gone.

    It is the product over steps of the share that stayed, in `WINDOW`, of the node's side, model and stratum.
    """
    there_NK = ~np.isnan(scores_NK)
    K = scores_NK.shape[1]
    mean_NK = np.nancumsum(scores_NK, axis=1) / np.arange(1, K + 1)
    stratum_NK = np.clip(mean_NK * STRATA, 0, STRATA - 1).astype(int)
    stay_NK = np.ones(scores_NK.shape)
    for group_N in _groups(swarm_N, model_N):
        asked_KB, stayed_KB = np.zeros((K, STRATA)), np.zeros((K, STRATA))
        for k in range(K - 1):
            asked_KB[k] = np.bincount(stratum_NK[group_N & there_NK[:, k], k], minlength=STRATA)
            stayed_KB[k] = np.bincount(stratum_NK[group_N & there_NK[:, k + 1], k], minlength=STRATA)
        for k in range(K - 1):
            near = slice(max(0, k - WINDOW), k + WINDOW + 1)
            asked_B, stayed_B = asked_KB[near].sum(0), stayed_KB[near].sum(0)
            share = (stayed_B.sum() + 0.5) / (asked_B.sum() + 1)  # never zero
            share_B = (stayed_B + PRIOR * share) / (asked_B + PRIOR)
            stay_NK[group_N, k + 1] = stay_NK[group_N, k] * share_B[stratum_NK[group_N, k]]
    return np.where(there_NK, stay_NK, np.nan)


def inverse(stay_NK: Array, swarm_N: Sides, model_N: Models) -> Array:
    """The weight of each node: the inverse probability of having stayed, at most `HEAVIEST`; 0 where it is gone."""
    there_NK = ~np.isnan(stay_NK)
    weights_NK = np.where(there_NK, 1 / np.where(there_NK, stay_NK, 1.0), 0.0)
    for group_N in _groups(swarm_N, model_N):
        left_K = np.maximum(there_NK[group_N].mean(0), 1e-12) if group_N.any() else 1.0
        weights_NK[group_N] = np.minimum(weights_NK[group_N], HEAVIEST / left_K)
    return weights_NK


def adjusted_p(
    values_NK: Array, weights_NK: Array, swarm_N: Sides, model_N: Models, permutations: int, seed: int
) -> Array:
    """p of each step's weighted difference, adjusted over all steps (maxT), by permutations of sides within models.

    A node keeps its weight on either side. Where sides leave unlike each other they are not exchangeable; so the
    statistic is the difference over its standard error (Chung and Romano, Annals of Statistics 41, 2013), and p holds
    for many nodes.
    """
    rng = np.random.default_rng(seed)
    seen_K = _statistic(values_NK, weights_NK, swarm_N[None], model_N)[0]
    above_K = np.ones(values_NK.shape[1])
    for start in range(0, permutations, BATCH):
        sides_PN = np.repeat(swarm_N[None], min(BATCH, permutations - start), 0)
        for model in np.unique(model_N):
            which = np.flatnonzero(model_N == model)
            sides_PN[:, which] = rng.permuted(sides_PN[:, which], axis=1)
        largest_P = _statistic(values_NK, weights_NK, sides_PN, model_N).max(1, initial=0.0)
        above_K += (largest_P[:, None] >= seen_K * (1 - 1e-9)).sum(0)  # equal but for rounding is equal
    adjusted_K: Array = above_K / (permutations + 1)
    return adjusted_K


def _groups(swarm_N: Sides, model_N: Models) -> Iterator[Sides]:
    """The nodes of each side and model."""
    for side in (False, True):
        for model in np.unique(model_N):
            yield (swarm_N == side) & (model_N == model)


def _statistic(values_NK: Array, weights_NK: Array, sides_PN: Sides, model_N: Models) -> Array:
    """(P, K) |t|: the weighted difference of sides over its standard error, both summed over models, each of which
    counts as it does among isolated nodes. 0 where no model has two nodes on each side."""
    shape = len(sides_PN), values_NK.shape[1]
    difference_PK, variance_PK, pooled_PK, shares_PK = (np.zeros(shape) for _ in range(4))
    for model in np.unique(model_N):
        which = model_N == model
        w_NK, y_NK = weights_NK[which], values_NK[which]
        # about the mean of both sides: squares of large sums would lose digits
        y_NK = y_NK - (w_NK * y_NK).sum(0) / np.maximum(w_NK.sum(0), 1e-12)
        parts = [w_NK > 0, w_NK, w_NK * y_NK, w_NK**2, w_NK**2 * y_NK, w_NK**2 * y_NK**2]
        swarm_PN = sides_PN[:, which].astype(float)
        swarm = [swarm_PN @ part for part in parts]
        isolated = [(1 - swarm_PN) @ part for part in parts]
        both_PK = (swarm[0] > 1.5) & (isolated[0] > 1.5)
        mean_PK, own_PK, all_PK = zip(*(_side(side, parts) for side in (swarm, isolated)), strict=True)
        share_PK = np.where(both_PK, isolated[1], 0.0)
        shares_PK += share_PK
        difference_PK += share_PK * (mean_PK[0] - mean_PK[1])
        variance_PK += share_PK**2 * (own_PK[0] + own_PK[1])
        pooled_PK += share_PK**2 * (all_PK[0] + all_PK[1])
    scale_PK = np.maximum(shares_PK, 1e-12)
    error_PK = np.sqrt(np.maximum(variance_PK, LEAST * pooled_PK)) / scale_PK
    t_PK: Array = np.abs(difference_PK) / scale_PK / np.maximum(error_PK, 1e-9)
    return t_PK


def _side(sums: list[Array], parts: list[Array]) -> tuple[Array, Array, Array]:
    """The weighted mean of a side, its variance by the side's own nodes, and its variance by the nodes of both."""
    count_PK, weight_PK, first_PK, square_PK, cross_PK, second_PK = sums
    weight_PK = np.maximum(weight_PK, 1e-12)
    mean_PK = first_PK / weight_PK
    spread_PK = second_PK - 2 * mean_PK * cross_PK + mean_PK**2 * square_PK
    own_PK = np.maximum(spread_PK, 0.0) / weight_PK**2 * count_PK / np.maximum(count_PK - 1, 1)
    both_K = parts[5].sum(0) / np.maximum(parts[3].sum(0), 1e-12)  # the mean of both is 0
    return mean_PK, own_PK, both_K * square_PK / weight_PK**2
