"""Held-out pass@1 along equal compute, pair by pair: what a study's report cuts shorter.

    python studies/pair_compute.py lab/default default 8/0 self
    python studies/pair_compute.py lab/sharing asks alone "alone asks" --by generated

A report ends all areas of a regime at the compute that every arm reaches, so that one table can be read across. An arm
that spends little thus hides what dearer ones do later. This compares the first arm with each other one up to what
these two reach: the interquartile mean of both, less the blind baseline, the difference as a share of the other's with
its 95 % interval, and in how many seeds the first is above. `--by`: what a node spends, by FLOPs, tokens that it
generates, or seconds of answering, scoring and learning (on one machine, with the same load). No study named these
beforehand: they have no test.
"""

from __future__ import annotations

import argparse
import math
from pathlib import Path
from statistics import fmean

import pandas as pd

from shoal.runs.folder import read_metrics
from shoal_lab.measures import FEWEST, area, curves, flops, held_out, metrics_frame, of_nodes, totals
from shoal_lab.results import RunResult, Runs, by_seed, read_results, scores
from shoal_lab.statistics import interquartile_mean, relative_difference

BLIND = "held_out/blind"
UNITS = {"flops": "FLOPs", "generated": "generated tokens", "seconds": "s"}


def spent(run: RunResult, by: str) -> dict[str, pd.Series]:
    """What each node that counts has spent by each of its rounds."""
    if by == "flops":
        return flops(run.own)
    if by == "generated":
        return totals(run.own, "tokens/generated")
    rows = [
        {"round": row["round"], "node": row["node"], "seconds": sum(v for k, v in row.items() if k[:8] == "seconds/")}
        for row in read_metrics(run.path)
    ]
    return totals(of_nodes(metrics_frame(rows), run.nodes), "seconds")


def line(runs: Runs, treated: str, control: str, by: str) -> str:
    """What one arm of a regime is above or below another, up to what both reach."""
    pair = {arm: runs[arm] for arm in (treated, control)}
    blind = scores(pair)
    drawn = {
        (arm, seed): [(curve, spent(run, by)[node]) for node, curve in curves(held_out(run.own)).items()]
        for arm, seeds in pair.items()
        for seed, run in seeds.items()
    }
    end = min(along[curve.index[-1]] for nodes in drawn.values() for curve, along in nodes)
    found = {
        arm: pd.Series({seed: height(drawn[arm, seed], end) for seed in seeds}) - by_seed(blind, arm, BLIND)
        for arm, seeds in pair.items()
    }
    above, below = found[treated].dropna(), found[control].dropna()
    seeds = above.index.intersection(below.index)
    if seeds.empty:
        return f"{treated} over {control}: too few evaluations in the compute that both reach"
    a, b = above[seeds], below[seeds]
    share = relative_difference(a, b)
    said = "no share" if share is None else f"{share.value:+.1%} [{share.low:+.1%}, {share.high:+.1%}]"
    means = f"{interquartile_mean(a):.3f} and {interquartile_mean(b):.3f}"
    seen = f"above in {int((a > b).sum())} of {len(seeds)} seeds"
    return f"{treated} over {control}, {end:.3g} {UNITS[by]}: {means}, {said}; {seen}"


def height(nodes: list[tuple[pd.Series, pd.Series]], end: float) -> float:
    """The mean area of a run's nodes; NaN where one has too few evaluations before `end`."""
    enough = all((along.reindex(curve.index) <= end).sum() >= FEWEST for curve, along in nodes)
    return fmean(area(curve, end, along) for curve, along in nodes) if nodes and enough else math.nan


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("treated")
    parser.add_argument("controls", nargs="+")
    parser.add_argument("--by", choices=UNITS, default="flops")
    asked = parser.parse_args()
    for regime, runs in read_results(asked.folder).runs.items():
        for control in asked.controls:
            if asked.treated in runs and control in runs:
                print(f"{regime}: {line(runs, asked.treated, control, asked.by)}")


if __name__ == "__main__":
    main()
