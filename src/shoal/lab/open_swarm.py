"""An open swarm as a judge saw it: nodes in the swarm against isolated ones, along their own participation.

    records = [Record("ada", "guppy", True, 3, 1.0), ...]        # a judge's, in the order of time
    found = compare_open(records, seed=0)
    found.steps[10].difference, found.steps[10].adjusted_p

As in figure 3 of arXiv 2509.08721, with what that figure lacks:

- **Normalised**: a step is a node's own k-th judged answer, not a date and not a round number.
- **Matched by model**: swarm nodes are weighted so that each model counts as it does among the isolated ones; models
  that only one side has are left out, and named.
- **Drop-outs**: most leave early, and who does badly may leave sooner. Beside all who are there at a step stand the
  *completers*, who stayed to the last step, and means *weighted* by the inverse probability of having stayed (Robins
  and Finkelstein, Biometrics 56, 2000), estimated within side, model and half of earlier scores.
- **Adjusted p**: nodes' sides are permuted within their models, and a step's p is the share of permutations whose
  greatest |t| over all steps exceeds its own (Westfall and Young's maxT, 1993): it holds for all steps together,
  however they depend on each other.

Shapes: N nodes, K steps.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

PERMUTATIONS: Final = 2_000
FEWEST: Final = 3
"""Nodes that each side must have at a step for it to be compared."""
HEAVIEST: Final = 20.0
"""No node counts for more than so many others that left."""


@dataclass(frozen=True)
class Record:
    """One judged answer."""

    node: str
    model: str
    in_swarm: bool
    round: int
    score: float


@dataclass(frozen=True)
class Step:
    """The two sides after the same number of judged answers: means of scores, or of sums of scores so far."""

    step: int
    """From 1."""
    swarm: float
    isolated: float
    swarm_nodes: int
    isolated_nodes: int
    completers: tuple[float, float] | None
    """Swarm and isolated, those that stayed to the last step alone."""
    weighted: tuple[float, float]
    """Swarm and isolated, by the inverse probability of having stayed."""
    adjusted_p: float

    @property
    def difference(self) -> float:
        return self.swarm - self.isolated


@dataclass(frozen=True)
class OpenSwarm:
    """What may be said of an open swarm."""

    cumulative: list[Step]
    per_round: list[Step]
    models: list[str]
    """Those that both sides have."""
    left_out: dict[str, int]
    """Nodes of models that only one side has."""
    method: str = (
        "p adjusted over all steps by Westfall and Young's maxT, with sides permuted among nodes of the same model"
    )


def compare_open(records: Sequence[Record], *, permutations: int = PERMUTATIONS, seed: int = 0) -> OpenSwarm:
    """Compares swarm with isolated nodes, step by step, as long as both have `FEWEST`.

    A node that was judged on both sides counts as two. Raises `ValueError` if no model has enough nodes on both sides.
    """
    scores: dict[tuple[str, str, bool], list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        scores[record.node, record.model, record.in_swarm].append((record.round, record.score))
    sides: dict[str, set[bool]] = defaultdict(set)
    for _, model, in_swarm in scores:
        sides[model].add(in_swarm)
    models = sorted(model for model, found in sides.items() if len(found) == 2)
    nodes = [key for key in sorted(scores) if key[1] in models]
    left_out: dict[str, int] = defaultdict(int)
    for _, model, _ in scores.keys() - set(nodes):
        left_out[model] += 1
    curves = [[score for _, score in sorted(scores[key])] for key in nodes]
    swarm_N = np.array([key[2] for key in nodes], bool)
    model_N = np.array([models.index(key[1]) for key in nodes])
    K = _steps(curves, swarm_N)
    if not K:
        raise ValueError(f"fewer than {FEWEST} nodes of the same models on either side: nothing to compare")
    scores_NK = np.full((len(nodes), K), np.nan)
    for n, curve in enumerate(curves):
        scores_NK[n, : len(curve)] = curve[:K]
    sums_NK = np.where(np.isnan(scores_NK), np.nan, np.nancumsum(scores_NK, axis=1))
    stay_NK = staying(scores_NK, swarm_N, model_N)
    args = swarm_N, model_N, stay_NK, permutations, seed
    return OpenSwarm(_compare(sums_NK, *args), _compare(scores_NK, *args), models, dict(left_out))


def staying(scores_NK: Array, swarm_N: NDArray[np.bool_], model_N: NDArray[np.int64]) -> Array:
    """For each node and step the probability of having stayed so long: the product of the shares that stayed, step by
    step, among nodes of the same side, model and half of mean scores so far. NaN where it is gone."""
    there_NK = ~np.isnan(scores_NK)
    stay_NK = np.where(there_NK, 1.0, np.nan)
    sums_N, last_N = np.zeros(len(scores_NK)), np.ones(len(scores_NK))
    for k in range(1, scores_NK.shape[1]):
        before_N = there_NK[:, k - 1]
        sums_N = sums_N + np.nan_to_num(scores_NK[:, k - 1])
        for side in (False, True):
            for model in np.unique(model_N):
                group_N = before_N & (swarm_N == side) & (model_N == model)
                high_N = sums_N > np.median(sums_N[group_N]) if group_N.any() else group_N
                for half_N in (group_N & high_N, group_N & ~high_N):
                    if half_N.any():
                        last_N[half_N] *= there_NK[half_N, k].mean()
        stay_NK[:, k] = np.where(there_NK[:, k], last_N, np.nan)
    return stay_NK


def _steps(curves: Sequence[Sequence[float]], swarm_N: NDArray[np.bool_]) -> int:
    """How many steps both sides have enough nodes for."""
    lengths_N = np.array([len(curve) for curve in curves])
    longest = [np.sort(lengths_N[swarm_N == side])[::-1] for side in (False, True)]
    return min((int(each[FEWEST - 1]) if len(each) >= FEWEST else 0 for each in longest), default=0)


def _compare(
    values_NK: Array,
    swarm_N: NDArray[np.bool_],
    model_N: NDArray[np.int64],
    stay_NK: Array,
    permutations: int,
    seed: int,
) -> list[Step]:
    there_NK = ~np.isnan(values_NK)
    values_NK = np.nan_to_num(values_NK)
    K = values_NK.shape[1]
    p_K = _adjusted(values_NK, there_NK, swarm_N, model_N, permutations, seed)
    complete_N = there_NK[:, -1]
    inverse_NK = np.where(there_NK, np.minimum(1 / np.where(there_NK, stay_NK, 1.0), HEAVIEST), 0.0)
    found = []
    for k in range(K):
        here_N = there_NK[:, k]
        plain = _sides(values_NK[:, k], here_N.astype(float), swarm_N, model_N)
        kept = _sides(values_NK[:, k], (here_N & complete_N).astype(float), swarm_N, model_N)
        weighted = _sides(values_NK[:, k], inverse_NK[:, k], swarm_N, model_N)
        assert plain is not None
        assert weighted is not None
        counts = int((here_N & swarm_N).sum()), int((here_N & ~swarm_N).sum())
        found.append(Step(k + 1, *plain, *counts, kept, weighted, float(p_K[k])))
    return found


def _sides(
    values_N: Array, weights_N: Array, swarm_N: NDArray[np.bool_], model_N: NDArray[np.int64]
) -> tuple[float, float] | None:
    """Means of swarm and isolated nodes, each model counting as it does among isolated ones. Models that one of the
    sides has lost by then count on neither."""
    sums, shares = np.zeros(2), 0.0
    for model in np.unique(model_N):
        each = [weights_N * (swarm_N == side) * (model_N == model) for side in (True, False)]
        if min(weight.sum() for weight in each) > 0:
            share = each[1].sum()
            sums += [share * (values_N * weight).sum() / weight.sum() for weight in each]
            shares += share
    return (float(sums[0] / shares), float(sums[1] / shares)) if shares else None


def _adjusted(
    values_NK: Array,
    there_NK: NDArray[np.bool_],
    swarm_N: NDArray[np.bool_],
    model_N: NDArray[np.int64],
    permutations: int,
    seed: int,
) -> Array:
    """p of each step over all steps (maxT), by permutations of sides within models, the one that was seen included."""
    rng = np.random.default_rng(seed)
    seen_K = _t(values_NK, there_NK, swarm_N, model_N)
    above_K = np.ones(values_NK.shape[1])
    for _ in range(permutations):
        permuted_N = swarm_N.copy()
        for model in np.unique(model_N):
            which = np.flatnonzero(model_N == model)
            permuted_N[which] = rng.permutation(swarm_N[which])
        above_K += _t(values_NK, there_NK, permuted_N, model_N).max(initial=0.0) >= seen_K - 1e-12
    adjusted_K: Array = above_K / (permutations + 1)
    return adjusted_K


def _t(values_NK: Array, there_NK: NDArray[np.bool_], swarm_N: NDArray[np.bool_], model_N: NDArray[np.int64]) -> Array:
    """|t| at each step: the difference of sides over its standard error, both summed over models (van Elteren's way of
    combining strata, with means)."""
    difference_K, variance_K = np.zeros(values_NK.shape[1]), np.zeros(values_NK.shape[1])
    for model in np.unique(model_N):
        stats = []
        for side in (True, False):
            here_NK = there_NK & ((swarm_N == side) & (model_N == model))[:, None]
            count_K = here_NK.sum(0)
            mean_K = (values_NK * here_NK).sum(0) / np.maximum(count_K, 1)
            square_K = ((values_NK - mean_K) ** 2 * here_NK).sum(0) / np.maximum(count_K - 1, 1)
            stats.append((count_K, mean_K, square_K / np.maximum(count_K, 1)))
        (n1_K, m1_K, v1_K), (n2_K, m2_K, v2_K) = stats
        both_K = (n1_K >= 2) & (n2_K >= 2)
        weight_K = np.where(both_K, n2_K, 0)
        difference_K += weight_K * (m1_K - m2_K)
        variance_K += weight_K**2 * (v1_K + v2_K)
    t_K: Array = np.abs(difference_K) / np.sqrt(np.maximum(variance_K, 1e-12))
    return np.where(variance_K > 0, t_K, 0.0)


def records_of(rows: Sequence[Mapping[str, object]]) -> list[Record]:
    """Records of a judge's rows (`node`, `model`, `in_swarm`, `round`, `score`)."""
    return [
        Record(str(r["node"]), str(r["model"]), bool(r["in_swarm"]), int(str(r["round"])), float(str(r["score"])))
        for r in rows
    ]
