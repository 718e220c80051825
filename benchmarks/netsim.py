"""The real choice of neighbours, admission, pool and sampler in simulated networks of 8 to 10,000 nodes.

    OMP_NUM_THREADS=1 python benchmarks/netsim.py --out docs/studies/network [--nodes 8 64 512] [--seconds 240]

Prints the figures against the number of nodes, and of 512 nodes with more loss, more churn and longer delays, one at a
time, and through a cut of the network; writes them to `network.csv`, `sweeps.csv`, `cut.csv`, `network.json` (all, with
the settings) and `network.png`. Half of the time is warm-up. Small networks are repeated with other seeds. See
`simnet.network` for what is real and what stands in, and docs/studies/network for what came out.
"""

from __future__ import annotations

import argparse
import csv
import gc
import json
import math
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from simnet.config import NetConfig
from simnet.figures import figures
from simnet.network import START, Network
from simnet.tally import SLICE

NODES = (8, 64, 512, 4096, 10_000)
SWEPT = 512
SWEEPS: dict[str, tuple[float, ...]] = {
    "loss": (0.0, 0.2, 0.5),
    "session": (60.0, 300.0),
    "delay": (0.5, 2.0),
}
Row = dict[str, float]


def simulate(config: NetConfig, seeds: int = 1) -> tuple[Row, Network]:
    """The mean row of `seeds` runs, and the last network. Raises `RuntimeError` if messages do not add up."""
    began, rows = time.perf_counter(), []
    for seed in range(config.seed, config.seed + seeds):
        net = Network(replace(config, seed=seed))
        net.run()
        counts = net.tally.counts
        if counts["sent"] != sum(counts[n] for n in ("received", "lost", "left", "overrun")) + net.unread:
            raise RuntimeError(f"messages do not add up: {dict(counts)}, {net.unread} unread")
        rows.append(figures(net))
        gc.collect()
    names = dict.fromkeys(name for row in rows for name in row)
    mean = {name: fmean(row.get(name, 0.0) for row in rows) for name in names}
    return {**mean, "seeds": seeds, "seconds it took": time.perf_counter() - began}, net


def table(rows: Sequence[Row], head: str) -> None:
    """Figures downwards, runs across, as Markdown."""
    names = dict.fromkeys(name for row in rows for name in row if name != head)
    print(f"\n| {head} | " + " | ".join(f"{row[head]:,g}" for row in rows) + f" |\n|{'---|' * (len(rows) + 1)}")
    for name in names:
        values = [row.get(name, 0.0) for row in rows]
        print(f"| {name} | " + " | ".join("-" if math.isnan(v) else f"{v:,.4g}" for v in values) + " |", flush=True)


def write(rows: Sequence[Row], path: Path) -> None:
    names = list(dict.fromkeys(name for row in rows for name in row))
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, names, restval=0.0)
        writer.writeheader()
        writer.writerows({name: f"{value:.6g}" for name, value in row.items()} for row in rows)


def draw(rows: Sequence[Row], cut: Sequence[Row], span: Sequence[float], path: Path) -> None:
    figure = Figure(figsize=(13, 7.5), dpi=100, facecolor="white", layout="constrained")
    (bytes_, stale, pool), (bottom_left, refused, healing) = figure.subplots(2, 3)
    lines(bytes_, rows, "KB a second, mean node", "rollouts in (KB/s)", "out to a relay (KB/s)", "offers in (KB/s)")
    lines(stale, rows, "staleness at use, seconds", "staleness p50 (s)", "staleness p90 (s)", "staleness p99 (s)")
    lines(bottom_left, rows, "maker's rounds behind at use", "rounds behind, mean", "rounds behind p90")
    lines(pool, rows, "pool, %", "live of pool (%)", "same question in pool (%)", "rounds with fewer than J (%)")
    lines(refused, rows, "makers", "makers in update", "makers in pool", "makers met by an observer")
    healing.plot(
        [row["second"] for row in cut], [row["few (%)"] for row in cut], "k-", label="rounds with fewer than J"
    )
    healing.plot([row["second"] for row in cut], [row["links across (%)"] for row in cut], "k--", label="links across")
    healing.legend(fontsize=8, loc="upper left", framealpha=1)
    healing.axvspan(*span, color="0.85")
    healing.text(sum(span) / 2, 0.7, "cut", ha="center", va="top", transform=healing.get_xaxis_transform())
    healing.set(xlabel="seconds", title=f"{SWEPT} nodes, cut in two, %", ylim=(0, 100))
    healing.title.set_fontsize(11)
    figure.savefig(path)


def lines(axes: Axes, rows: Sequence[Row], title: str, *names: str) -> None:
    for name, style in zip(names, ("ko-", "ks--", "k^:"), strict=False):
        axes.plot([row["nodes"] for row in rows], [row[name] for row in rows], style, label=name, fillstyle="none")
    axes.set_xscale("log")
    axes.set_xticks([row["nodes"] for row in rows], [f"{row['nodes']:,g}" for row in rows], rotation=30, fontsize=8)
    axes.set_xticks([], minor=True)
    axes.set_xlabel("nodes")
    axes.set_title(title, fontsize=11)
    axes.grid(color="0.9")
    axes.set_ylim(0, 1.4 * max(row[name] for row in rows for name in names) or 1)
    axes.legend(fontsize=8, loc="upper right", framealpha=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, nargs="+", default=NODES)
    parser.add_argument("--seconds", type=float, default=240.0, help="simulated")
    parser.add_argument("--observers", type=int, default=16, help="at most half of the nodes are")
    parser.add_argument("--loss", type=float, default=NetConfig.loss)
    parser.add_argument("--session", type=float, default=NetConfig.session, help="mean stay of a node, seconds")
    parser.add_argument("--delay", type=float, default=NetConfig.delay, help="median of links, seconds")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-sweeps", action="store_true", help="only against the number of nodes")
    parser.add_argument("--draw", action="store_true", help="only the picture, of the network.json that is there")
    args = parser.parse_args()
    if args.draw:
        facts = json.loads((args.out / "network.json").read_text())
        return draw(facts["nodes"], facts["cut"]["series"], facts["cut"]["span"], args.out / "network.png")
    args.out.mkdir(parents=True, exist_ok=True)
    base = NetConfig(
        observers=args.observers,
        seconds=args.seconds,
        warm_up=args.seconds / 2,
        loss=args.loss,
        session=args.session,
        delay=args.delay,
        seed=args.seed,
    )

    def sized(nodes: int) -> NetConfig:
        return replace(base, nodes=nodes, observers=max(1, min(args.observers, nodes // 2)))

    rows: list[Row] = []
    for nodes in args.nodes:
        rows.append(simulate(sized(nodes), seeds=max(1, min(4, 512 // nodes)))[0])
        print(f"{nodes} nodes: {rows[-1]['seconds it took']:.0f} s", flush=True)
    table(rows, "nodes")
    write(rows, args.out / "network.csv")

    swept: list[Row] = []
    cut: list[Row] = []
    span = (0.6 * args.seconds, 0.8 * args.seconds)
    if not args.no_sweeps:
        for name, values in SWEEPS.items():
            found = [{name: v, **simulate(replace(sized(SWEPT), **{name: v}))[0]} for v in values]  # type: ignore[arg-type]
            table(found, name)
            swept += [{n: row.get(n, getattr(base, n)) for n in SWEEPS} | row for row in found]
        write(swept, args.out / "sweeps.csv")
        row, net = simulate(replace(sized(SWEPT), cut=span))
        series = sorted(net.tally.series.items())
        first = int(START // SLICE)
        across = dict(net.across)
        cut = [
            {"second": at, "few (%)": 100 * few / all, "links across (%)": 100 * across.get(at, math.nan)}
            for at, (all, few) in (((n - first) * SLICE, counts) for n, counts in series)
            if all
        ]
        table([row], "nodes")
        write(cut, args.out / "cut.csv")
    draw(rows, cut, span, args.out / "network.png")
    facts = {"config": asdict(base), "nodes": rows, "sweeps": swept, "cut": {"span": span, "series": cut}}
    (args.out / "network.json").write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
