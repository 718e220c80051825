"""What one swarm run is measured by, from the rows of its `metrics.jsonl` (`folder.read_metrics`).

    rows = read_metrics(Path("runs/one"))
    curve = held_out(rows)["node-1"]                       # {0: 0.02, 10: 0.11, 20: 0.19}
    area(curve), best_to_last(curve), oscillation(curve)
    summary(rows, threshold=0.2)                           # one figure of each kind for the run

Held-out pass@1 and local unfiltered reward count. Reward over the training set is a diagnostic: it rises by the choice
of what to train on alone (docs/concepts/paper.md). A figure that is null, absent or not finite was not measured;
a measure of nothing is None or absent, never 0. Rounds are each node's own; round 0 is the evaluation before training.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from statistics import fmean
from typing import Any

import numpy as np

Rows = Sequence[Mapping[str, Any]]
Curve = Mapping[int, float]
"""A figure for each round that has one."""

PASS = "eval/pass@1"


def series(rows: Rows, key: str) -> dict[str, dict[int, float]]:
    """The figure `key` of each node that has any, by round in order. Of two rows for a round the later counts."""
    nodes: dict[str, dict[int, float]] = defaultdict(dict)
    for row in rows:
        value = row.get(key)
        if value is not None and math.isfinite(value):
            nodes[str(row["node"])][int(row["round"])] = float(value)
    return {node: dict(sorted(curve.items())) for node, curve in nodes.items()}


def tasks(rows: Rows) -> list[str]:
    """The tasks that were evaluated."""
    return sorted({key.removeprefix(PASS + "/") for row in rows for key in row if key.startswith(PASS + "/")})


def held_out(rows: Rows, task: str | None = None) -> dict[str, dict[int, float]]:
    """Held-out pass@1 of each node by round, on `task` or over the questions of all."""
    return series(rows, PASS if task is None else f"{PASS}/{task}")


def learners(rows: Rows) -> list[str]:
    """The nodes that train: those that want a number of foreign rollouts, be it 0."""
    return sorted(series(rows, "rollouts/wanted"))


def tokens_generated(rows: Rows) -> dict[str, dict[int, float]]:
    """Tokens that each node has generated up to each round, 0 at round 0.

    A node that keeps a round's number to itself (an endpoint) has no totals from there on.
    """
    counted = series(rows, "tokens/generated")
    totals: dict[str, dict[int, float]] = {}
    for node, rounds in _rounds(rows).items():
        totals[node], total = {0: 0.0}, 0.0
        for round in rounds:
            if round not in counted.get(node, {}):
                break
            total += counted[node][round]
            totals[node][round] = total
    return totals


def area(curve: Curve, until: float | None = None, along: Curve | None = None) -> float | None:
    """The mean height of `curve`: its area by trapezoids over the length from its first evaluation to `until`.

    The x axis is rounds, or what `along` gives for a round (such as `tokens_generated`). The height at `until` is
    interpolated; arms are comparable only up to an `until` that both reach. None for a curve that is empty or ends
    before it. Of one evaluation it is the height.
    """
    rounds = [round for round in sorted(curve) if along is None or round in along]
    points = [(float(round) if along is None else along[round], curve[round]) for round in rounds]
    if not points or (until is not None and not points[0][0] <= until <= points[-1][0]):
        return None
    x, y = np.array(points).T
    if until is not None:
        end = float(y[x == until][-1]) if (x == until).any() else float(np.interp(until, x, y))
        x, y = np.append(x[x < until], until), np.append(y[x < until], end)
    span = float(x[-1] - x[0])
    return float(np.trapezoid(y, x)) / span if span else float(y[-1])


def final(curve: Curve, share: float = 0.1) -> float | None:
    """The mean of the last `share` of the evaluations, at least of one."""
    values = _values(curve)
    count = max(1, math.ceil(round(share * len(values), 9)))
    return fmean(values[-count:]) if values else None


HOLD = 2
"""Evaluations in a row that must reach a threshold: of few questions one may pass by luck. With 16 answers and a chance
of 0.02, one of eleven reaches 0.1 in 36 % of cases, two in a row in 1.5 %."""
FEWEST = 4
"""Evaluations that an area along tokens rests on at least: fewer are a straight line drawn over what nobody saw."""


def time_to_threshold(curve: Curve, threshold: float, hold: int = 1) -> int | None:
    """The first round whose evaluation is at least `threshold`, as are the `hold` - 1 after it. None if there is
    none."""
    rounds = sorted(curve)
    for start in range(len(rounds) - hold + 1):
        if all(curve[round] >= threshold for round in rounds[start : start + hold]):
            return rounds[start]
    return None


def lags(rows: Rows, threshold: float, hold: int = 1) -> dict[str, dict[str, int | None]]:
    """For each task that any node learned, how many rounds after the first each evaluated node did: None if never."""
    found = {}
    for task in tasks(rows):
        times = {node: time_to_threshold(curve, threshold, hold) for node, curve in held_out(rows, task).items()}
        first = min((time for time in times.values() if time is not None), default=None)
        if first is not None:
            found[task] = {node: None if time is None else time - first for node, time in times.items()}
    return found


def forgetting(curves: Mapping[str, Curve]) -> float | None:
    """F: the mean over tasks of the best earlier accuracy less the last, of one node's curve for each task.

    Chaudhry et al., arXiv 1801.10112, section 3. Below 0 where the last is the best. The best of noisy figures is too
    high: compare runs with equally many evaluations. None without two evaluations of a task.
    """
    drops = [max(values[:-1]) - values[-1] for values in map(_values, curves.values()) if len(values) > 1]
    return fmean(drops) if drops else None


def best_to_last(curve: Curve) -> float | None:
    """The best evaluation less the last, at least 0 (arXiv 2508.17850)."""
    values = _values(curve)
    return max(values) - values[-1] if values else None


def oscillation(curve: Curve, window: int = 5) -> float | None:
    """The root mean square of the curve's distance from its trend.

    The trend at an evaluation is a straight line fitted to the `window` evaluations around it (an odd number). The
    noise of finitely many questions is in it: compare runs that asked equally many. None for fewer evaluations.
    """
    rounds = sorted(curve)
    squares = []
    for start in range(len(rounds) - window + 1):
        x = np.array(rounds[start : start + window], dtype=np.float64)
        y = np.array([curve[round] for round in rounds[start : start + window]])
        x -= x.mean()
        slope = float(x @ y) / float(x @ x)
        squares.append(float(y[window // 2] - y.mean() - slope * x[window // 2]) ** 2)
    return math.sqrt(fmean(squares)) if squares else None


def totals(rows: Rows) -> dict[str, dict[str, float | None]]:
    """`rounds`, `updates` (optimiser steps), `tokens/generated` (None if a round's number is unknown), `tokens/trained`
    and `refused` of each node."""
    steps, trained, refused = (series(rows, key) for key in ("learner/steps", "tokens/trained", "rollouts/refused"))
    generated = tokens_generated(rows)
    return {
        node: {
            "rounds": len(rounds),
            "updates": sum(_values(steps.get(node, {}))),
            "tokens/generated": generated[node].get(max(rounds, default=0)),
            "tokens/trained": sum(_values(trained.get(node, {}))),
            "refused": _counted(_values(refused.get(node, {}))),
        }
        for node, rounds in _rounds(rows).items()
    }


def summary(
    rows: Rows,
    *,
    threshold: float,
    hold: int = HOLD,
    nodes: Collection[str] | None = None,
    rounds: float | None = None,
    tokens: float | None = None,
) -> dict[str, float | None]:
    """One figure of each kind for the run, which `contrasts` compares between arms.

    - `held_out/...`: means over those of `nodes` that are evaluated (default: the learners, else all); None if one of
      them lacks the figure. `rounds` and `tokens` (of one node) end the areas. `task/NAME/...`: of one task.
    - `threshold/reached`: the share of nodes and tasks that reached `threshold`. `threshold/rounds`, `threshold/lag`
      (behind a task's first learner): a node that never learns counts with the round of its last evaluation (Royston
      and Parmar, BMC Medical Research Methodology 13:152, 2013).
    - `cumulative/...`: sums over those nodes. `mean/...`: means over their rounds. `per_node/...`: means over them.
    - `total/...`: sums over all nodes, since a contributor's tokens are a cost too.
    """
    chosen = set(nodes if nodes is not None else learners(rows) or _rounds(rows))
    own = [row for row in rows if row["node"] in chosen]
    curves = held_out(own)
    by_task = {task: held_out(own, task) for task in tasks(own)}
    spent, done = tokens_generated(own), totals(rows)  # `spent` has every node of `own`

    reached, waits, late = [], [], []
    for each in by_task.values():
        times = {node: time_to_threshold(curve, threshold, hold) for node, curve in each.items()}
        first = min((time for time in times.values() if time is not None), default=None)
        ends = sorted(max(each[node]) if time is None else time for node, time in times.items())
        reached += [float(time is not None) for time in times.values()]
        waits += ends
        late += [end - first for end in ends[1:]] if first is not None else []
    figures: dict[str, float | None] = {
        "held_out/area_per_update": _mean([area(curve, rounds) for curve in curves.values()]),
        "held_out/area_per_token": _mean([_per_token(curve, tokens, spent[node]) for node, curve in curves.items()]),
        "held_out/start": _mean([curve.get(0) for curve in curves.values()]),
        "held_out/final": _mean([final(curve) for curve in curves.values()]),
        "held_out/gain": _mean([_gain(curve) for curve in curves.values()]),
        "held_out/forgetting": _mean(
            [forgetting({task: each[node] for task, each in by_task.items() if node in each}) for node in curves]
        ),
        "held_out/oscillation": _mean([oscillation(curve) for curve in curves.values()]),
        "held_out/best_to_last": _mean([best_to_last(curve) for curve in curves.values()]),
        "threshold/reached": _mean(reached),
        "threshold/rounds": _mean(waits),
        "threshold/lag": _mean(late),
    }
    for task, each in by_task.items():
        figures[f"task/{task}/area_per_update"] = _mean([area(curve, rounds) for curve in each.values()])
        figures[f"task/{task}/final"] = _mean([final(curve) for curve in each.values()])
    for key in ("reward/local", "reward/trained_on"):
        figures[f"cumulative/{key}"] = _sum([sum(_values(curve)) for curve in series(own, key).values()])
    for key in ("gradient/external", "external/ess", "external/gated"):
        figures[f"mean/{key}"] = _mean([value for curve in series(own, key).values() for value in curve.values()])
    figures["per_node/tokens/generated"] = _mean([done[node]["tokens/generated"] for node in spent])
    for key in ("rounds", "updates", "tokens/generated", "tokens/trained", "refused"):
        figures[f"total/{key}"] = _sum([each[key] for each in done.values()])
    return figures


def _rounds(rows: Rows) -> dict[str, list[int]]:
    """The rounds of each node, without round 0."""
    found: dict[str, set[int]] = defaultdict(set)
    for row in rows:
        found[str(row["node"])].update([int(row["round"])] if row["round"] > 0 else [])
    return {node: sorted(rounds) for node, rounds in found.items()}


def _per_token(curve: Curve, until: float | None, spent: Curve) -> float | None:
    """The area along tokens, where there are evaluations enough before `until`."""
    seen = [round for round in curve if round in spent and (until is None or spent[round] <= until)]
    return area(curve, until, spent) if len(seen) >= FEWEST else None


def _gain(curve: Curve) -> float | None:
    """The end of a curve less its start."""
    end = final(curve)
    return None if end is None or 0 not in curve else end - curve[0]


def _values(curve: Curve) -> list[float]:
    return [curve[round] for round in sorted(curve)]


def _counted(readings: Sequence[float]) -> float:
    """What a counter that may start again from 0 has counted."""
    pairs = zip([0.0, *readings], readings, strict=False)
    return sum(now - before if now >= before else now for before, now in pairs)


def _known(figures: Sequence[float | None]) -> list[float]:
    """All of `figures`, or none if one of them is not known."""
    known = [figure for figure in figures if figure is not None]
    return known if len(known) == len(figures) else []


def _mean(figures: Sequence[float | None]) -> float | None:
    return fmean(known) if (known := _known(figures)) else None


def _sum(figures: Sequence[float | None]) -> float | None:
    return math.fsum(known) if (known := _known(figures)) else None
