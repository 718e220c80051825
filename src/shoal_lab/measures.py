"""What one swarm run is measured by, from its metrics as a data frame.

    metrics = metrics_frame(read_metrics(folder))
    curve = held_out(metrics)["node-1"].dropna()           # a number for each round that was evaluated
    area(curve), final(curve)
    summary(metrics)                                       # one figure of each kind for the run

Held-out pass@1 and local unfiltered reward count; reward over the training set rises by choice alone
(docs/concepts/paper.md). What was not measured is NaN, never 0. Round 0 is the evaluation before training.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import numpy as np
import pandas as pd

PASS = "eval/pass@1"
FEWEST = 4
"""Evaluations that an area along FLOPs rests on at least: fewer are a straight line drawn over what nobody saw."""
FAMILIES = ("task/", "per_round/", "run/", "attack/")
"""How figures begin that depend on a study's tasks and experiment, or that `results.scores` adds."""
COSTS = ("tokens/generated", "tokens/prompted", "tokens/trained", "tokens/read", "flops/generate", "flops/learn")
"""What a round costs a node."""


def metrics_frame(rows: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Rows of a run's metrics, indexed by round and node, in order. Of two rows of a node for a round the later counts,
    figure by figure where it has a number. A number that is null or not finite is NaN: it was not measured."""
    table = pd.DataFrame(list(rows))
    if table.empty:
        return pd.DataFrame(index=pd.MultiIndex.from_arrays([[], []], names=["round", "node"]))
    return table.set_index(["round", "node"]).astype(float).replace([math.inf, -math.inf], math.nan).groupby(
        ["round", "node"]
    ).last()  # fmt: skip


def of_nodes(metrics: pd.DataFrame, nodes: Iterable[str]) -> pd.DataFrame:
    """The rows of some nodes."""
    return metrics[metrics.index.isin(list(nodes), level="node")]


def up_to(metrics: pd.DataFrame, rounds: float) -> pd.DataFrame:
    """The rows up to a round; all for NaN."""
    return metrics if math.isnan(rounds) else metrics[metrics.index.get_level_values("round") <= rounds]


def series(metrics: pd.DataFrame, key: str) -> pd.DataFrame:
    """The figure `key`: a row for each round, a column for each node that has any."""
    if key not in metrics:
        return pd.DataFrame(index=pd.Index([], name="round"))
    return metrics[key].dropna().unstack("node")


def curves(table: pd.DataFrame) -> dict[str, pd.Series]:
    """The columns of a `series` without what was not measured."""
    return {node: table[node].dropna() for node in table}


def tasks(metrics: pd.DataFrame) -> list[str]:
    """The tasks that were evaluated."""
    return sorted(str(key).removeprefix(f"{PASS}/") for key in metrics if str(key).startswith(f"{PASS}/"))


def held_out(metrics: pd.DataFrame, task: str | None = None) -> pd.DataFrame:
    """Held-out pass@1 of each node by round, on `task` or over the questions of all."""
    return series(metrics, PASS if task is None else f"{PASS}/{task}")


def flops(metrics: pd.DataFrame) -> dict[str, pd.Series]:
    """Floating-point operations of each node up to each of its rounds, answering and learning (`totals`)."""
    answering, learning = (totals(metrics, f"flops/{part}") for part in ("generate", "learn"))
    return {node: spent + learning[node] if len(learning[node]) > 1 else spent for node, spent in answering.items()}


def totals(metrics: pd.DataFrame, key: str) -> dict[str, pd.Series]:
    """The sum of the figure `key` of each node up to each of its rounds, 0 at round 0.

    A node that keeps a round's number to itself (an endpoint) has no totals from there on.
    """
    counted = series(metrics, key)
    found = {}
    for node, rows in metrics.groupby("node"):
        rounds = sorted({0, *rows.index.get_level_values("round")})
        own = counted.get(node, pd.Series(dtype=float)).reindex(rounds)
        own[0] = 0.0
        found[str(node)] = own.cumsum(skipna=False).dropna()
    return found


def area(curve: pd.Series, until: float | None = None, along: pd.Series | None = None) -> float:
    """The mean height of `curve`: its area by trapezoids over the length from its first evaluation to `until`.

    The x axis is rounds, or what `along` gives for a round (such as `flops`). The height at `until` is
    interpolated; arms are comparable only up to an `until` that both reach. NaN for a curve that is empty or ends
    before it. Of one evaluation it is the height.
    """
    x = np.array(curve.index if along is None else along.reindex(curve.index), dtype=float)
    y = curve.to_numpy()[~np.isnan(x)]
    x = x[~np.isnan(x)]
    if not len(x) or (until is not None and not x[0] <= until <= x[-1]):
        return math.nan
    if until is not None:
        end = y[x == until][-1] if (x == until).any() else np.interp(until, x, y)
        x, y = np.append(x[x < until], until), np.append(y[x < until], end)
    span = x[-1] - x[0]
    return float(np.trapezoid(y, x) / span if span else y[-1])


def final(curve: pd.Series, share: float = 0.1) -> float:
    """The mean of the last `share` of the evaluations, at least of one."""
    return float(curve.iloc[-max(1, math.ceil(round(share * len(curve), 9))) :].mean())


def forgetting(tasks: Iterable[pd.Series]) -> float:
    """F: the mean over tasks of the best earlier accuracy less the last, of one node's curve for each task.

    Chaudhry et al., arXiv 1801.10112, section 3. Below 0 where the last is the best. The best of noisy figures is too
    high: compare runs with equally many evaluations. NaN without two evaluations of a task.
    """
    drops = [curve.iloc[:-1].max() - curve.iloc[-1] for curve in tasks if len(curve) > 1]
    return float(np.mean(drops)) if drops else math.nan


def summary(
    metrics: pd.DataFrame,
    *,
    nodes: Collection[str] | None = None,
    rounds: float = math.nan,
    compute: float | None = None,
) -> dict[str, float]:
    """One figure of each kind for the run, which `contrasts` compares between arms: of the first `rounds` (NaN: of
    all), but for `held_out/area_per_flop`, which ends at `compute` (FLOPs of one node).

    - `held_out/...`: means over those of `nodes` that are evaluated (default: those that train, else all); NaN if one
      of them lacks the figure. `task/NAME/...`: of one task.
    - `cumulative/...`: sums over those nodes. `mean/...`: means over their rounds. `per_node/...`: means over them.
    - `total/refused`: the sum over all nodes.
    """
    if nodes is None:
        nodes = list(series(metrics, "rollouts/wanted")) or list(metrics.index.unique("node"))
    whole = of_nodes(metrics, nodes)
    complete, spent = curves(held_out(whole)), flops(whole)
    metrics, own = up_to(metrics, rounds), up_to(whole, rounds)
    found = curves(held_out(own))
    by_task = {task: curves(held_out(own, task)) for task in tasks(own)}
    end = None if math.isnan(rounds) else rounds
    figures = {
        "held_out/area_per_update": _mean(area(curve, end) for curve in complete.values()),
        "held_out/area_per_flop": _mean(_per_flop(curve, compute, spent[node]) for node, curve in complete.items()),
        "held_out/start": _mean(curve.get(0, math.nan) for curve in found.values()),
        "held_out/final": _mean(map(final, found.values())),
        "held_out/gain": _mean(final(curve) - curve.get(0, math.nan) for curve in found.values()),
        "held_out/blind": _last(own, "eval/blind"),
        "held_out/shuffled": _last(own, "eval/shuffled"),
        "held_out/forgetting": _mean(
            forgetting(each[node] for each in by_task.values() if node in each) for node in found
        ),
    }
    for task, each in by_task.items():
        figures[f"task/{task}/area_per_update"] = _mean(
            area(curve, end) for curve in curves(held_out(whole, task)).values()
        )
        figures[f"task/{task}/final"] = _mean(map(final, each.values()))
    for key in ("reward/local", "reward/trained_on"):
        sums = series(own, key).sum()
        figures[f"cumulative/{key}"] = math.fsum(sums) if len(sums) else math.nan
    for key in ("gradient/peers", "peers/ess", "peers/shortened", "rollouts/live_local"):
        figures[f"mean/{key}"] = _mean(own[key].dropna() if key in own else [])
    last = own.index.to_frame(index=False).groupby("node")["round"].max()
    for key in COSTS:
        measured = series(own, key)
        ends = {node: sums.get(last[node], math.nan) for node, sums in totals(own, key).items() if node in measured}
        figures[f"per_node/{key}"] = _mean(ends.get(node, math.nan) for node in spent)
    steps = [(read.diff().fillna(read), read) for read in curves(series(metrics, "rollouts/refused")).values()]
    figures["total/refused"] = float(sum(step.where(step >= 0, read).sum() for step, read in steps))  # it may restart
    return figures


def _last(metrics: pd.DataFrame, key: str) -> float:
    """The mean over nodes of a figure in their last evaluation."""
    return _mean(curve.iloc[-1] for curve in curves(series(metrics, key)).values())


def _per_flop(curve: pd.Series, until: float | None, spent: pd.Series) -> float:
    """The area along FLOPs, where any are spent and evaluations enough lie before `until`."""
    seen = spent[spent.index.isin(curve.index)]
    enough = (seen <= (math.inf if until is None else until)).sum() >= FEWEST
    return area(curve, until, spent) if enough and until != 0 else math.nan


def _mean(figures: Iterable[float]) -> float:
    """NaN for no figures, or if one is."""
    return float(pd.Series(list(figures), dtype=float).mean(skipna=False))
