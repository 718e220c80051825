"""The open swarm of a judge's records (`shoal lab open`): nodes in the swarm against isolated ones, along their own
judged answers.

    found = compare_open(read_records(Path("records.csv")))
    found.cumulative.loc[10, ["swarm", "isolated", "adjusted_p"]]        # after ten answers

As figure 3 of arXiv 2509.08721, with three additions:

- **Matched by model**: each model counts as it does among isolated nodes; models of only one side are left out.
- **Drop-outs**: most nodes leave early, and the bad ones may leave sooner. Beside all nodes that are there at a step
  stand the *completers*, who stayed to the last step, and means *weighted* by the inverse probability of having stayed
  (Robins and Finkelstein, Biometrics 56, 2000), estimated within side, model and fifth of mean scores so far.
- **Adjusted p** of the weighted difference, for all steps together (Westfall and Young's maxT, 1993).

Shapes: N nodes, K steps, P permutations, B strata of mean scores.
"""

import json
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from shoal.errors import UserError
from shoal.runs.curves import INK, MUTED
from shoal.runs.disk import write_atomically
from shoal_lab import drawing
from shoal_lab.drawing import Picture
from shoal_lab.statistics import Array

Ids = NDArray[np.int64]

PERMUTATIONS: Final = 2_000
FEWEST: Final = 3
"""Nodes that each side must have at a step for it to be compared."""
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
ALPHA: Final = 0.05
KEY: Final = ["node", "model", "in_swarm"]
TRUTH: Final = {"true": True, "1": True, "false": False, "0": False}
METHOD: Final = (
    "p of the weighted difference, adjusted over all steps by Westfall and Young's maxT, with sides permuted among "
    "nodes of the same model, whose weights go with them"
)


@dataclass(frozen=True)
class OpenSwarm:
    """The comparison. Both tables have a row for each number of judged answers, from 1, with the means of both sides
    (`swarm`, `isolated`; those of completers and the weighted ones too), nodes left, and `adjusted_p`."""

    cumulative: pd.DataFrame
    """Of sums of scores so far."""
    per_round: pd.DataFrame
    """Of scores."""
    models: list[str]
    """Models that both sides have."""
    left_out: dict[str, int]
    """Nodes of models that only one side has."""


def read_records(path: Path) -> pd.DataFrame:
    """A judge's records in a CSV or JSON-lines file, less those whose `outcome` is void (the judge was down). Raises
    `UserError` for a file without them."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    try:
        if text.lstrip().startswith("{"):
            rows = pd.DataFrame([json.loads(line) for line in text.splitlines() if line.strip()])
        else:
            rows = pd.read_csv(StringIO(text), dtype=str)
        if "outcome" in rows:
            rows = rows[rows["outcome"] != "void"]
        found = rows[[*KEY, "round", "score"]].astype({"node": str, "model": str, "round": int, "score": float})
        found["in_swarm"] = rows["in_swarm"].map(lambda word: TRUTH.get(str(word).strip().lower()))
        if found["in_swarm"].isna().any() or not np.isfinite(found["score"]).all():
            raise ValueError("in_swarm must be true or false, and score a number")
    except (ValueError, KeyError, TypeError, AttributeError) as error:  # a line of JSON may be no map
        needed = "in_swarm, model, node, round, score"
        raise UserError(f"{path} has no records of a judge: it needs {needed} ({error})") from error
    return found.astype({"in_swarm": bool})


def compare_open(records: pd.DataFrame, *, permutations: int = PERMUTATIONS, seed: int = 0) -> OpenSwarm:
    """Compares swarm with isolated nodes, step by step, as long as both have `FEWEST`.

    A node that was judged on both sides counts as two. Raises `ValueError` if a side has fewer than `FEWEST`
    nodes of models that both sides have.
    """
    on_both = records["model"].map(records.groupby("model")["in_swarm"].nunique()) == 2
    left_out = records[~on_both].drop_duplicates(KEY)["model"].value_counts().to_dict()
    kept = records[on_both].sort_values([*KEY, "round", "score"])
    scores = kept.assign(step=kept.groupby(KEY).cumcount()).pivot(index=KEY, columns="step", values="score")
    model_N, models = pd.factorize(scores.index.get_level_values("model"), sort=True)
    swarm_N = scores.index.get_level_values("in_swarm").to_numpy(bool)

    length = scores.notna().sum(axis=1)
    enough = length.groupby("in_swarm").apply(lambda side: side.nlargest(FEWEST).min() if len(side) >= FEWEST else 0)
    shared = length.groupby(["model", "in_swarm"]).max().groupby("model").min()  # one model at least is on both sides
    K = min(enough.min(), shared.max()) if len(scores) else 0
    if not K:
        raise ValueError(f"fewer than {FEWEST} nodes of the same models on either side: nothing to compare")
    scores_NK = scores.to_numpy(float)[:, :K]
    sums_NK = np.where(np.isnan(scores_NK), np.nan, np.nancumsum(scores_NK, axis=1))
    group_N = 2 * model_N + swarm_N
    weights_NK = inverse(staying(scores_NK, group_N), group_N)
    cumulative, per_round = (
        _compare(values_NK, swarm_N, model_N, weights_NK, permutations, seed) for values_NK in (sums_NK, scores_NK)
    )
    return OpenSwarm(cumulative, per_round, list(models), left_out)


def staying(scores_NK: Array, group_N: Ids) -> Array:
    """The probability that each node has stayed until each step; NaN where it is gone. `group_N`: side and model.

    It is the product over steps of the share that stayed, in `WINDOW`, of the node's group and stratum.
    """
    there_NK = ~np.isnan(scores_NK)
    K = scores_NK.shape[1]
    mean_NK = np.nancumsum(scores_NK, axis=1) / np.arange(1, K + 1)
    stratum_NK = np.clip(mean_NK * STRATA, 0, STRATA - 1).astype(int)
    asked_NKB = (stratum_NK[..., None] == np.arange(STRATA)) & there_NK[..., None]
    stayed_NKB = asked_NKB[:, :-1] & there_NK[:, 1:, None]
    stay_NK = np.ones(scores_NK.shape)
    for group in np.unique(group_N):
        own_N = group_N == group
        asked_KB, stayed_KB = asked_NKB[own_N, :-1].sum(0), stayed_NKB[own_N].sum(0)
        for k in range(K - 1):
            near = slice(max(0, k - WINDOW), k + WINDOW + 1)
            asked_B, stayed_B = asked_KB[near].sum(0), stayed_KB[near].sum(0)
            share = (stayed_B.sum() + 0.5) / (asked_B.sum() + 1)  # never zero
            share_B = (stayed_B + PRIOR * share) / (asked_B + PRIOR)
            stay_NK[own_N, k + 1] = stay_NK[own_N, k] * share_B[stratum_NK[own_N, k]]
    return np.where(there_NK, stay_NK, np.nan)


def inverse(stay_NK: Array, group_N: Ids) -> Array:
    """The weight of each node: the inverse probability of having stayed, at most `HEAVIEST`; 0 where it is gone."""
    weights_NK = np.nan_to_num(1 / stay_NK)
    for group in np.unique(group_N):
        left_K = (~np.isnan(stay_NK[group_N == group])).mean(0)
        weights_NK[group_N == group] = np.minimum(weights_NK[group_N == group], HEAVIEST / np.maximum(left_K, 1e-12))
    return weights_NK


def adjusted_p(
    values_NK: Array, weights_NK: Array, swarm_N: NDArray[np.bool_], model_N: Ids, permutations: int, seed: int
) -> Array:
    """p of each step's weighted difference, adjusted over all steps (maxT), by permutations of sides within models.

    A node keeps its weight on either side. Where sides leave unlike each other they are not exchangeable; so the
    statistic is the difference over its standard error (Chung and Romano, Annals of Statistics 41, 2013), and p holds
    for many nodes.
    """
    rng = np.random.default_rng(seed)
    seen_K = _statistic(values_NK, weights_NK, swarm_N, model_N)
    above_K = np.ones(values_NK.shape[1])
    permuted_N = swarm_N.copy()
    for _ in range(permutations):
        for model in np.unique(model_N):
            permuted_N[model_N == model] = rng.permutation(swarm_N[model_N == model])
        largest = _statistic(values_NK, weights_NK, permuted_N, model_N).max(initial=0.0)
        above_K += largest >= seen_K * (1 - 1e-9)  # equal but for rounding is equal
    return np.asarray(above_K / (permutations + 1))


def _statistic(values_NK: Array, weights_NK: Array, swarm_N: NDArray[np.bool_], model_N: Ids) -> Array:
    """(K,) |t|: the weighted difference of sides over its standard error, both summed over models, each of which counts
    as it does among isolated nodes. 0 where no model has two nodes on each side."""
    difference_K, variance_K, pooled_K, shares_K = np.zeros((4, values_NK.shape[1]))
    for model in np.unique(model_N):
        w_NK, y_NK = weights_NK[model_N == model], values_NK[model_N == model]
        y_NK = y_NK - _mean(y_NK, w_NK)
        both_K = (w_NK**2 * y_NK**2).sum(0) / np.maximum((w_NK**2).sum(0), 1e-12)
        sides = [swarm_N[model_N == model] == side for side in (True, False)]
        share_K = w_NK[sides[1]].sum(0) * np.min([(w_NK[side] > 0).sum(0) > 1 for side in sides], axis=0)
        for side, sign in zip(sides, (1, -1), strict=True):
            w_MK, y_MK = w_NK[side], y_NK[side]
            count_K, scale_K = (w_MK > 0).sum(0), np.maximum(w_MK.sum(0), 1e-12) ** 2
            own_K = (w_MK**2 * (y_MK - _mean(y_MK, w_MK)) ** 2).sum(0) * count_K / np.maximum(count_K - 1, 1)
            difference_K += sign * share_K * _mean(y_MK, w_MK)
            variance_K += share_K**2 * own_K / scale_K
            pooled_K += share_K**2 * both_K * (w_MK**2).sum(0) / scale_K
        shares_K += share_K
    scale_K = np.maximum(shares_K, 1e-12)
    error_K = np.sqrt(np.maximum(variance_K, LEAST * pooled_K)) / scale_K
    return np.asarray(np.abs(difference_K) / scale_K / np.maximum(error_K, 1e-9))


def _mean(values_NK: Array, weights_NK: Array) -> Array:
    return np.asarray((values_NK * weights_NK).sum(0) / np.maximum(weights_NK.sum(0), 1e-12))


def _compare(
    values_NK: Array, swarm_N: NDArray[np.bool_], model_N: Ids, weights_NK: Array, permutations: int, seed: int
) -> pd.DataFrame:
    there_NK = ~np.isnan(values_NK)
    values_NK = np.nan_to_num(values_NK)
    columns: dict[str, Array] = {"step": np.arange(1, values_NK.shape[1] + 1)}
    ways = {"": there_NK, "completers_": there_NK & there_NK[:, -1:], "weighted_": weights_NK}
    for way, each_NK in ways.items():
        means = _side_means(values_NK, each_NK.astype(float), swarm_N, model_N)
        columns |= {f"{way}{side}": mean_K for side, mean_K in zip(("swarm", "isolated"), means, strict=True)}
    columns |= {"swarm_nodes": there_NK[swarm_N].sum(0), "isolated_nodes": there_NK[~swarm_N].sum(0)}
    p_K = adjusted_p(values_NK, weights_NK, swarm_N, model_N, permutations, seed)
    return pd.DataFrame(columns | {"adjusted_p": p_K}).set_index("step")


def _side_means(values_NK: Array, weights_NK: Array, swarm_N: NDArray[np.bool_], model_N: Ids) -> Array:
    """Means of swarm and isolated nodes; each model counts as it does among isolated nodes. A model that a side has
    lost counts on neither; NaN if all are lost."""
    sums_SK, shares_K = np.zeros((2, values_NK.shape[1])), np.zeros(values_NK.shape[1])
    for model in np.unique(model_N):
        sides = [(model_N == model) & (swarm_N == side) for side in (True, False)]
        weight_SK = np.array([weights_NK[side].sum(0) for side in sides])
        share_K = np.where(weight_SK.min(0) > 0, weight_SK[1], 0)
        sums_SK += share_K * np.array([_mean(values_NK[side], weights_NK[side]) for side in sides])
        shares_K += share_K
    with np.errstate(invalid="ignore"):
        return np.asarray(sums_SK / shares_K)


def write_open_report(path: Path, out: Path) -> Path:
    """Writes open.json, open.png and open.csv into `out`; returns the figure's path."""
    try:
        found = compare_open(read_records(path))
    except ValueError as error:
        raise UserError(f"{path}: {error}") from error
    out.mkdir(parents=True, exist_ok=True)
    tables = {name: table.reset_index() for name, table in vars(found).items() if isinstance(table, pd.DataFrame)}
    data = {name: json.loads(table.to_json(orient="records")) for name, table in tables.items()}
    data |= {"models": found.models, "left_out": found.left_out, "method": METHOD}
    write_atomically(out / "open.json", (json.dumps(data, indent=1) + "\n").encode())
    drawing.save(draw_open(found), out)
    return out / "open.png"


def draw_open(found: OpenSwarm) -> Picture:
    """Cumulative scores of both sides, their difference with drop-outs treated in three ways, and the nodes left."""
    table, arms = found.cumulative, {"swarm": 1, "isolated": 0}
    figure = drawing.blank(6.6, 6.4)
    top, middle, bottom = figure.subplots(3, 1, sharex=True, height_ratios=[3, 2, 1.3])
    drawing.dress(top, "all that are there", "", "cumulative score\nof a node")
    long = [pd.DataFrame({"arm": side, "x": table.index, "value": table[side]}) for side in arms]
    drawing.draw_arms(top, pd.concat(long), arms, bands=False)
    drawing.dress(middle, "difference: swarm less isolated", "", "cumulative score")
    for step in table.index[table["adjusted_p"] > ALPHA]:
        middle.axvspan(step - 0.5, step + 0.5, color=drawing.GRID, linewidth=0, zorder=0)
    for way, prefix, dashes in (("all", "", "-"), ("weighted", "weighted_", "--"), ("completers", "completers_", ":")):
        gaps = table[f"{prefix}swarm"] - table[f"{prefix}isolated"]
        middle.plot(table.index, gaps, color=INK, linewidth=1.5, linestyle=dashes, label=way)
    middle.axhline(0, color=MUTED, linewidth=0.8)
    middle.legend(frameon=False, fontsize=8.5, ncols=3, loc="upper left")
    drawing.dress(bottom, "", "judged answers of a node", "nodes left")
    for side, place in arms.items():
        look = {key: value for key, value in drawing.style(place).items() if key != "marker"}
        bottom.plot(table.index, table[f"{side}_nodes"], linewidth=1.5, **look)
    bottom.set_ylim(bottom=0)
    drawing.rounds_axis(top, table.index[-1])
    drawing.legend(figure, arms, 6.6)
    left = ", ".join(f"{model} ({count})" for model, count in sorted(found.left_out.items()))
    caption = (
        f"Nodes in the swarm and isolated ones by their own judged answers; models: {', '.join(found.models)}, "
        "each counting as among isolated nodes. Top, and all: those that are there, whoever left. weighted: by the "
        "inverse probability of having stayed, estimated from earlier scores; completers: those who stayed to the end. "
        f"Grey: adjusted p above {ALPHA:g} ({METHOD})."
        + (f" Left out, as one side alone has them: {left}." if left else "")
    )
    kinds = {"cumulative": found.cumulative, "per round": found.per_round}
    return Picture("open", caption, figure, pd.concat(kinds, names=["kind"]).reset_index())
