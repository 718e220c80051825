"""Trends of the linear model (`linear_swarm.swarm`): tables on the screen, CSV, JSON and a picture in a folder.

    OMP_NUM_THREADS=1 python benchmarks/linear.py trends arms null scale --out docs/studies/linear

trends  gain of 4/4 over 8/0 against the chance of success at the start and the number of nodes (2 minutes and more)
arms    arms and controls over 8/0: generalists and specialists, two rates
null    reward over the training set where nobody learns
scale   processor seconds of a run against the number of nodes

A gain is the ratio of two arms' figures with the same seed: interquartile mean over seeds with the 95 % bootstrap
interval of `lab.intervals`, both of its logarithm. `area` is that under exact pass@1, start included; `honest` is the
cumulative reward of own rollouts, unfiltered. Both at equal updates: 8/0 generates twice as much as 4/4.
"""

from __future__ import annotations

import argparse
import csv
import json
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from linear_swarm.swarm import LinearConfig, LinearResult, run

from shoal_lab.contrasts import Pairs, compare
from shoal_lab.statistics import Interval, iqm_interval

P0 = (0.0005, 0.002, 0.01, 0.05)
NODES = (2, 4, 8, 16, 32, 128, 1024)
SHARED = LinearConfig()
ALONE = replace(SHARED, local=8, external=0)
Rows = list[dict[str, Any]]
FIGURES: dict[str, Callable[[LinearResult], float]] = {"area": lambda r: r.area, "honest": lambda r: r.honest}


def runs(config: LinearConfig, seeds: Sequence[int]) -> list[LinearResult]:
    return [run(config, seed) for seed in seeds]


def gain(above: Sequence[float], below: Sequence[float]) -> Interval:
    """Ratio of figures, seed by seed."""
    logs = [math.log(one / other) for one, other in zip(above, below, strict=True)]
    interval = iqm_interval(logs)
    return Interval(*(math.exp(x) for x in (interval.value, interval.low, interval.high)))


def gains(arm: list[LinearResult], base: list[LinearResult], of: str = "") -> dict[str, float]:
    """Columns of a row: each figure's gain with its interval. A reward of 0 in some run has no ratio."""
    row: dict[str, float] = {}
    for name, figure in FIGURES.items():
        above, below = [figure(r) for r in arm], [figure(r) for r in base]
        if min(above) > 0 < min(below):
            found = gain(above, below)
            row |= {f"{name}{of}": found.value, f"{name}{of}_low": found.low, f"{name}{of}_high": found.high}
    return row


def trends(seeds: Sequence[int]) -> Rows:
    rows: Rows = []
    for p0 in P0:
        for nodes in NODES:
            some = seeds if nodes < 1000 else seeds[:5]  # so many nodes average most of the chance away
            began = time.process_time()
            base = runs(replace(ALONE, p0=p0, nodes=nodes), some)
            middle = time.process_time()
            arm = runs(replace(SHARED, p0=p0, nodes=nodes), some)
            ended = time.process_time()
            row: dict[str, Any] = {"p0": p0, "nodes": nodes, "seeds": len(some), **gains(arm, base)}
            row |= {"area_8/0": np.mean([r.area for r in base]), "area_4/4": np.mean([r.area for r in arm])}
            row |= {"externals": np.mean([r.external_RN.mean() for r in arm])}
            row |= {"seconds_8/0": (middle - began) / len(some), "seconds_4/4": (ended - middle) / len(some)}
            rows.append(row)
    return rows


def arms(seeds: Sequence[int]) -> Rows:
    """Regimes and contrasts as named beforehand; p by `compare`, after Holm, on areas."""
    regimes = {
        "generalists": replace(SHARED, p0=0.005),
        "specialists": replace(SHARED, p0=0.002, answers=64, speciality=2.0),
    }
    rows: Rows = []
    for regime, config in regimes.items():
        for rate in (0.02, 0.1):
            shared = replace(config, learning_rate=rate)
            found = {
                "8/0": runs(replace(shared, local=8, external=0), seeds),
                "4/0": runs(replace(shared, external=0), seeds),
                "6/2": runs(replace(shared, local=6, external=2), seeds),
                "4/4": runs(shared, seeds),
                "2/6": runs(replace(shared, local=2, external=6), seeds),
                "4/4 topr": runs(replace(shared, external_weight="topr"), seeds),
                "2/6 topr": runs(replace(shared, local=2, external=6, external_weight="topr"), seeds),
                "self": runs(replace(shared, source="self"), seeds),
                "replay": runs(replace(shared, source="replay"), seeds),
                "shuffled": runs(replace(shared, shuffle="external"), seeds),
            }
            own_NK = np.arange(config.nodes)[:, None] % config.tasks == np.arange(config.tasks)
            for arm, results in found.items():
                mean_NK = np.mean([r.expected_SNK.mean(0) for r in results], axis=0)
                row = {"regime": regime, "rate": rate, "arm": arm, **gains(results, found["8/0"])}
                row |= {"area_on_own_task": mean_NK[own_NK].mean(), "area_on_others": mean_NK[~own_NK].mean()}
                rows.append(row)
            scores = {arm: {s: r.area for s, r in zip(seeds, rs, strict=True)} for arm, rs in found.items()}
            named = {"sharing": ("4/4", "8/0"), "control": ("4/4", "self"), "too much": ("2/6", "4/4")}
            named["topr"] = ("4/4 topr", "4/4")
            print(f"\n{regime}, {rate}:")
            for contrast in compare([Pairs(n, a, b, scores[a], scores[b]) for n, (a, b) in named.items()]):
                print(f"- {contrast.sentence}")
    return rows


def mixtures(mean: float) -> dict[str, dict[str, Any]]:
    """Difficulties of that mean. `ladder`: six tasks, each three times as hard as the one before. `equal`: all alike.
    `few`: some of 100 questions are solved with 0.4, the rest (next to) never."""
    steps, easy = 3.0 ** -np.arange(6), round(250 * mean)
    few = (0.4,) * easy + (1e-5,) * (100 - easy)
    return {
        "ladder": {"p0": tuple((mean * steps / steps.mean()).tolist())},
        "equal": {"p0": (mean,)},
        "few": {"p0": few, "tasks": 100, "questions": 1, "features": 1},
    }


def null(seeds: Sequence[int]) -> Rows:
    """Frozen, identical policies; external rollouts are of the round itself."""
    rows: Rows = []
    still = replace(SHARED, frozen=8, rounds=200, max_age=0)
    for same in (True, False):
        for mean in (0.004, 0.035, 0.1):
            for name, mixture in mixtures(mean).items():
                frozen = replace(still, same_questions=same, **mixture)
                base = runs(replace(frozen, local=8, external=0), seeds)
                row: dict[str, Any] = {"mixture": name, "same_questions": same, "accuracy": mean, "pass@1_moved": 0.0}
                for local in (6, 4, 2):
                    arm, results = f"{local}/{8 - local}", runs(replace(frozen, local=local, external=8 - local), seeds)
                    found = gain([r.trained_RN.mean() for r in results], [r.trained_RN.mean() for r in base])
                    row |= {arm: found.value, f"{arm}_low": found.low, f"{arm}_high": found.high}
                    row[f"honest {arm}"] = np.mean([r.honest for r in results]) / np.mean([r.honest for r in base])
                    moved = max(float(np.abs(r.expected_SNK - r.expected_SNK[0]).max()) for r in results)
                    row["pass@1_moved"] = max(row["pass@1_moved"], moved)
                rows.append(row)
    return rows


def scale(seeds: Sequence[int]) -> Rows:
    rows: Rows = []
    for nodes in (8, 64, 128, 512, 1024, 2048, 4096):
        began = time.process_time()
        result = run(replace(SHARED, nodes=nodes), seeds[0])
        seconds = time.process_time() - began
        row = {"nodes": nodes, "rounds": 100, "seconds": seconds, "us_per_node_and_round": seconds / nodes * 1e4}
        rows.append(row | {"area": result.area, "externals": result.external_RN.mean()})
    return rows


def draw(rows: Rows, path: Path) -> None:
    """Gains against nodes, a line for each p0, told apart by marks and dashes; bars are intervals."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(13, 5.5), dpi=100, layout="constrained")
    looks = [("o", "-", "black"), ("s", "--", "black"), ("^", "-.", "0.35"), ("D", ":", "0.35")]
    titles = {"area": "Area under exact pass@1", "honest": "Cumulative honest reward"}
    for axes, (name, title) in zip(figure.subplots(1, 2, sharey=True), titles.items(), strict=True):
        for shift, (p0, (mark, dash, ink)) in enumerate(zip(P0, looks, strict=True)):
            line = [row for row in rows if row["p0"] == p0 and name in row]
            x = [row["nodes"] * 1.03**shift for row in line]
            y = np.array([row[name] for row in line])
            bars = [[row[name] - row[f"{name}_low"] for row in line], [row[f"{name}_high"] - row[name] for row in line]]
            style: dict[str, Any] = {"marker": mark, "linestyle": dash, "color": ink, "markerfacecolor": "white"}
            axes.errorbar(x, y, yerr=np.maximum(bars, 0), capsize=3, label=f"{p0:g}", **style)
        axes.axhline(1, color="0.6", linewidth=1)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        axes.set_xticks(NODES, [str(n) for n in NODES])
        axes.yaxis.set_major_formatter(lambda value, _: f"{value:g}")
        axes.set_xlabel("nodes")
        axes.set_title(title)
        axes.grid(color="0.9")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
    figure.axes[0].set_ylabel("4/4 over 8/0, equal updates")
    figure.axes[0].legend(title="pass@1 at the start", frameon=False)
    figure.savefig(path, metadata={"Software": None})


def show(name: str, rows: Rows) -> None:
    """A table for people: `value [low, high]` in one cell."""
    bounds = {f"{key}{end}" for row in rows for key in row for end in ("_low", "_high")}
    columns = list(dict.fromkeys(key for row in rows for key in row if key not in bounds))

    def cell(row: dict[str, Any], key: str) -> str:
        value = row.get(key, "")
        if not isinstance(value, float):
            return str(value)
        ends = f" [{row[key + '_low']:.2f}, {row[key + '_high']:.2f}]" if f"{key}_low" in row else ""
        return f"{value:.2f}{ends}" if ends else f"{value:.3g}"

    print(f"\n### {name}\n\n| {' | '.join(columns)} |\n|{'---|' * len(columns)}")
    for row in rows:
        print(f"| {' | '.join(cell(row, key) for key in columns)} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    studies = {"trends": trends, "arms": arms, "null": null, "scale": scale}
    parser.add_argument("study", nargs="+", choices=studies)
    parser.add_argument("--out", type=Path, required=True, help="folder of the CSV, JSON and PNG")
    parser.add_argument("--seeds", type=int, default=10)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    for name in args.study:
        began = time.process_time()
        rows = studies[name](range(1, args.seeds + 1))
        seconds = time.process_time() - began
        show(f"{name} ({args.seeds if name != 'scale' else 1} seeds, {seconds:.0f} s)", rows)
        with (args.out / f"{name}.csv").open("w", newline="") as file:
            writer = csv.DictWriter(file, list(dict.fromkeys(key for row in rows for key in row)), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)
        report = {"study": name, "seeds": args.seeds, "seconds": seconds, "config": asdict(SHARED), "rows": rows}
        (args.out / f"{name}.json").write_text(json.dumps(report, indent=1) + "\n")
        if name == "trends":
            draw(rows, args.out / "trends.png")


if __name__ == "__main__":
    main()
