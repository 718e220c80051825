"""An open swarm as a judge saw it: nodes in the swarm against isolated ones, along their own judged answers.

    found = compare_open(read_records(Path("records.csv")))
    found.cumulative[9].difference, found.cumulative[9].adjusted_p      # after ten answers

As figure 3 of arXiv 2509.08721, with three additions:

- **Matched by model**: each model counts as it does among isolated nodes; models of only one side are left out.
- **Drop-outs**: most nodes leave early, and the bad ones may leave sooner. Beside all nodes that are there at a step
  stand the *completers*, who stayed to the last step, and means *weighted* by the inverse probability of having stayed
  (Robins and Finkelstein, Biometrics 56, 2000), estimated within side, model and fifth of mean scores so far.
- **Adjusted p** of the weighted difference, for all steps together (Westfall and Young's maxT, 1993).
"""

from __future__ import annotations

import csv
import json
import math
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from shoal.apps.lab.intervals import Array
from shoal.apps.lab.open_statistics import Models, Sides, adjusted_p, inverse, staying
from shoal.errors import UserError

PERMUTATIONS: Final = 2_000
FEWEST: Final = 3
"""Nodes that each side must have at a step for it to be compared."""
TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}


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
    """Swarm and isolated, of nodes that stayed to the last step."""
    weighted: tuple[float, float]
    """Swarm and isolated, by the inverse probability of having stayed."""
    adjusted_p: float
    """Of the weighted difference, over all steps together."""

    @property
    def difference(self) -> float:
        return self.swarm - self.isolated


@dataclass(frozen=True)
class OpenSwarm:
    """The comparison, step by step."""

    cumulative: list[Step]
    per_round: list[Step]
    models: list[str]
    """Models that both sides have."""
    left_out: dict[str, int]
    """Nodes of models that only one side has."""
    method: str = (
        "p of the weighted difference, adjusted over all steps by Westfall and Young's maxT, with sides permuted among "
        "nodes of the same model, whose weights go with them"
    )


def read_records(path: Path) -> list[Record]:
    """A judge's records in a CSV or JSON-lines file, less those whose `outcome` is void (the judge was down). Raises
    `UserError` for a file without them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    try:
        if text.lstrip().startswith("{"):
            rows: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines() if line.strip()]
        else:
            rows = list(csv.DictReader(text.splitlines()))
        return [_record(row) for row in rows if row.get("outcome") != "void"]
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a line of JSON may be no map
        needed = "in_swarm, model, node, round, score"
        raise UserError(f"{path} has no records of a judge: it needs {needed} ({error})") from error


def _record(row: dict[str, Any]) -> Record:
    in_swarm, score = TRUTH.get(str(row["in_swarm"]).strip().lower()), float(str(row["score"]))
    if in_swarm is None or not math.isfinite(score):
        raise ValueError(f"in_swarm is {row['in_swarm']!r}, score is {row['score']!r}")
    return Record(str(row["node"]), str(row["model"]), in_swarm, int(str(row["round"])), score)


def compare_open(records: Sequence[Record], *, permutations: int = PERMUTATIONS, seed: int = 0) -> OpenSwarm:
    """Compares swarm with isolated nodes, step by step, as long as both have `FEWEST`.

    A node that was judged on both sides counts as two. Raises `ValueError` if no model has enough nodes on both sides.
    """
    scores: dict[tuple[str, str, bool], list[tuple[int, float]]] = defaultdict(list)
    for record in records:
        scores[record.node, record.model, record.in_swarm].append((record.round, record.score))
    sides = {(model, in_swarm) for _, model, in_swarm in scores}
    models = sorted({model for model, _ in sides if {(model, True), (model, False)} <= sides})
    nodes = [key for key in sorted(scores) if key[1] in models]
    curves = [[score for _, score in sorted(scores[key])] for key in nodes]
    swarm_N = np.array([key[2] for key in nodes], bool)
    model_N = np.array([models.index(key[1]) for key in nodes])
    K = _steps(np.array([len(curve) for curve in curves], int), swarm_N, model_N)
    if not K:
        raise ValueError(f"fewer than {FEWEST} nodes of the same models on either side: nothing to compare")
    scores_NK = np.full((len(nodes), K), np.nan)
    for n, curve in enumerate(curves):
        scores_NK[n, : len(curve)] = curve[:K]
    sums_NK = np.where(np.isnan(scores_NK), np.nan, np.nancumsum(scores_NK, axis=1))
    weights_NK = inverse(staying(scores_NK, swarm_N, model_N), swarm_N, model_N)
    cumulative, per_round = (
        _compare(values_NK, swarm_N, model_N, weights_NK, permutations, seed) for values_NK in (sums_NK, scores_NK)
    )
    left_out = Counter(model for _, model, _ in scores if model not in models)
    return OpenSwarm(cumulative, per_round, models, dict(left_out))


def _steps(lengths_N: Models, swarm_N: Sides, model_N: Models) -> int:
    """How many steps both sides have enough nodes for, with at least one model that is on both."""
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
    found = []
    for k in range(values_NK.shape[1]):
        here_N = there_NK[:, k]
        plain, kept, weighted = (
            _means(values_NK[:, k], weights_N, swarm_N, model_N)
            for weights_N in (here_N.astype(float), (here_N & there_NK[:, -1]).astype(float), weights_NK[:, k])
        )
        assert plain is not None
        assert weighted is not None
        counts = int((here_N & swarm_N).sum()), int((here_N & ~swarm_N).sum())
        found.append(Step(k + 1, *plain, *counts, kept, weighted, float(p_K[k])))
    return found


def _means(values_N: Array, weights_N: Array, swarm_N: Sides, model_N: Models) -> tuple[float, float] | None:
    """Means of swarm and isolated nodes; each model counts as it does among isolated nodes. A model that a side has
    lost counts on neither."""
    sums, shares = np.zeros(2), 0.0
    for model in np.unique(model_N):
        each = [weights_N * (swarm_N == side) * (model_N == model) for side in (True, False)]
        if min(weight.sum() for weight in each) > 0:
            share = each[1].sum()
            sums += [share * (values_N * weight).sum() / weight.sum() for weight in each]
            shares += share
    return (float(sums[0] / shares), float(sums[1] / shares)) if shares else None
