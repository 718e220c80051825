"""Held-out pass@1 along equal compute, pair by pair: what a study's report cuts shorter.

    python studies/pair_compute.py lab/default default 8/0 self

A report ends all areas of a regime at the compute that every arm reaches, so that one table can be read across. An arm
that spends little thus hides what dearer ones do later. This compares the first arm with each other one up to the
compute that these two reach: the interquartile mean of both, less the blind baseline, the difference as a share of the
other's with its 95 % interval, and in how many seeds the first is above. No study named these beforehand: they have no
test.
"""

from __future__ import annotations

import sys
from pathlib import Path

from shoal_lab.results import Runs, by_seed, read_results, scores
from shoal_lab.statistics import interquartile_mean, relative_difference

AREA, BLIND = "held_out/area_per_flop", "held_out/blind"


def line(runs: Runs, treated: str, control: str) -> str:
    """What one arm of a regime is above or below another, up to the compute that both reach."""
    figures = scores({arm: runs[arm] for arm in (treated, control)})
    above, below = (by_seed(figures, arm, AREA) - by_seed(figures, arm, BLIND) for arm in (treated, control))
    seeds = above.dropna().index.intersection(below.dropna().index)
    if seeds.empty:
        return f"{treated} over {control}: too few evaluations in the compute that both reach"
    a, b = above[seeds], below[seeds]
    share = relative_difference(a, b)
    said = "no share" if share is None else f"{share.value:+.1%} [{share.low:+.1%}, {share.high:+.1%}]"
    end = min(figures["run/end_flops"])
    means = f"{interquartile_mean(a):.3f} and {interquartile_mean(b):.3f}"
    seen = f"above in {int((a > b).sum())} of {len(seeds)} seeds"
    return f"{treated} over {control}, {end:.3g} FLOPs: {means}, {said}; {seen}"


def main() -> None:
    folder, treated, *controls = sys.argv[1:]
    results = read_results(Path(folder))
    for regime, runs in results.runs.items():
        for control in controls:
            if treated in runs and control in runs:
                print(f"{regime}: {line(runs, treated, control)}")


if __name__ == "__main__":
    main()
