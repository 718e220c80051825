"""An open swarm as a judge saw it: nodes in the swarm against isolated ones, along their own participation.

    records = [Record("ada", "guppy", True, 3, 1.0), ...]        # a judge's, in the order of time
    found = compare_open(records, seed=0)
    found.cumulative[9].difference, found.cumulative[9].adjusted_p      # after ten answers

As in figure 3 of arXiv 2509.08721, with what that figure lacks:

- **Normalised**: a step is a node's own k-th judged answer, not a date and not a round number.
- **Matched by model**: swarm nodes are weighted so that each model counts as it does among the isolated ones; models
  that only one side has are left out, and named.
- **Drop-outs**: most leave early, and who does badly may leave sooner. Beside all who are there at a step stand the
  *completers*, who stayed to the last step, and means *weighted* by the inverse probability of having stayed (Robins
  and Finkelstein, Biometrics 56, 2000), estimated within side, model and fifth of mean scores so far. That undoes what
  past scores foretell, not what a node knows of itself beside them.
- **Adjusted p**: of the weighted difference. Nodes' sides are permuted within their models, and a step's p is the share
  of permutations whose greatest |t| over all steps exceeds its own (Westfall and Young's maxT, 1993): it holds for all
  steps together, however they depend on each other.

Shapes: N nodes, K steps.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from shoal.apps.lab.open_statistics import Array, Models, Sides, adjusted_p, inverse, staying

PERMUTATIONS: Final = 2_000
FEWEST: Final = 3
"""Nodes that each side must have at a step for it to be compared."""


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
    """Of the weighted difference, over all steps together."""

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
        "p of the weighted difference, adjusted over all steps by Westfall and Young's maxT, with sides permuted among "
        "nodes of the same model, whose weights go with them"
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
    K = _steps(curves, swarm_N, model_N)
    if not K:
        raise ValueError(f"fewer than {FEWEST} nodes of the same models on either side: nothing to compare")
    scores_NK = np.full((len(nodes), K), np.nan)
    for n, curve in enumerate(curves):
        scores_NK[n, : len(curve)] = curve[:K]
    sums_NK = np.where(np.isnan(scores_NK), np.nan, np.nancumsum(scores_NK, axis=1))
    weights_NK = inverse(staying(scores_NK, swarm_N, model_N), swarm_N, model_N)
    args = swarm_N, model_N, weights_NK, permutations, seed
    return OpenSwarm(_compare(sums_NK, *args), _compare(scores_NK, *args), models, dict(left_out))


def _steps(curves: Sequence[Sequence[float]], swarm_N: Sides, model_N: Models) -> int:
    """How many steps both sides have enough nodes for, with one model at least that is on both."""
    lengths_N = np.array([len(curve) for curve in curves], int)
    longest = [np.sort(lengths_N[swarm_N == side])[::-1] for side in (False, True)]
    enough = min(int(each[FEWEST - 1]) if len(each) >= FEWEST else 0 for each in longest)
    shared = [
        min(lengths_N[(model_N == model) & (swarm_N == side)].max() for side in (False, True))
        for model in np.unique(model_N)
    ]
    return min(enough, int(max(shared, default=0)))


def _compare(
    values_NK: Array, swarm_N: Sides, model_N: Models, weights_NK: Array, permutations: int, seed: int
) -> list[Step]:
    there_NK = ~np.isnan(values_NK)
    values_NK = np.nan_to_num(values_NK)
    p_K = adjusted_p(values_NK, weights_NK, swarm_N, model_N, permutations, seed)
    complete_N = there_NK[:, -1]
    found = []
    for k in range(values_NK.shape[1]):
        here_N = there_NK[:, k]
        plain = _sides(values_NK[:, k], here_N.astype(float), swarm_N, model_N)
        kept = _sides(values_NK[:, k], (here_N & complete_N).astype(float), swarm_N, model_N)
        weighted = _sides(values_NK[:, k], weights_NK[:, k], swarm_N, model_N)
        assert plain is not None
        assert weighted is not None
        counts = int((here_N & swarm_N).sum()), int((here_N & ~swarm_N).sum())
        found.append(Step(k + 1, *plain, *counts, kept, weighted, float(p_K[k])))
    return found


def _sides(values_N: Array, weights_N: Array, swarm_N: Sides, model_N: Models) -> tuple[float, float] | None:
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


def records_of(rows: Sequence[Mapping[str, object]]) -> list[Record]:
    """Records of a judge's rows (`node`, `model`, `in_swarm`, `round`, `score`), as JSON or CSV has them, without those
    whose `outcome` is void: the judge was down. Raises `KeyError` or `ValueError` for rows that are none."""
    return [
        Record(str(r["node"]), str(r["model"]), _truth(r["in_swarm"]), int(str(r["round"])), _score(r["score"]))
        for r in rows
        if r.get("outcome") != "void"
    ]


def _truth(value: object) -> bool:
    """True or false, as a word or a digit too. Nothing else: to Python, "false" is true."""
    said = str(value).strip().lower()
    if said not in ("true", "false", "1", "0"):
        raise ValueError(f"in_swarm is {value!r}, and neither true nor false")
    return said in ("true", "1")


def _score(value: object) -> float:
    score = float(str(value))
    if not math.isfinite(score):
        raise ValueError(f"score is {value!r}, and no number")
    return score
