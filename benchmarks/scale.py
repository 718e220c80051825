"""What a swarm costs as it grows: real nodes on this machine, by a relay and by a folder, and simulated ones.

    python benchmarks/scale.py --out docs/studies/scale             # 2, 8, 64 real, 1,000 and 10,000 simulated
    python benchmarks/scale.py --out /tmp/scale --nodes 2 8 --simulated 1000 --seconds 20

Real nodes are processes with sockets, signatures and full admission, but no model (`swarm_node`): a round sleeps two
seconds in place of training and shares one rollout of 4 KB. Simulated ones choose neighbours, admit and sample by the
real code (`netsim`), a round of 10 s. Writes `scale.json`, `scale.md` and `scale.png`.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
from matplotlib.figure import Figure
from netsim import simulate
from simnet.config import NetConfig
from swarm_node import Spec, live_together, relays

TRAINING = 2.0
Row = dict[str, Any]


def real(how: str, nodes: int, seconds: float) -> Row:
    """A swarm of processes that share by a `relay` or a `folder`."""
    with tempfile.TemporaryDirectory() as room, relays(1 if how == "relay" else 0, 18_900) as where:
        start = time.time() + 8 + nodes / 3
        place = Path(room) / "place"
        place.mkdir()
        connect = where or [str(place)]
        specs = [Spec(f"{room}/{n}.json", start, seconds, connect, train=TRAINING, words=50) for n in range(nodes)]
        children = psutil.Process(os.getpid()).children()
        relay = next((child for child in children if "relay" in child.cmdline()), None)
        began, spent = time.time(), sum(relay.cpu_times()[:2]) if relay else 0.0
        lives = live_together(specs)
        used = (sum(relay.cpu_times()[:2]) - spent) / (time.time() - began) if relay else 0.0
        rounds = sorted(1e3 * (took - TRAINING) for one in lives for _, took in one["rounds"])
        mean = lambda of: statistics.fmean(of(one) for one in lives)  # noqa: E731
        lived = seconds + 3
        return {
            "how": how,
            "nodes": nodes,
            "nodes that ended well": len(lives),
            "round beside training, p50 (ms)": rounds[len(rounds) // 2],
            "round beside training, p99 (ms)": rounds[int(0.99 * len(rounds))],
            "rollouts in (KB/s)": mean(lambda one: one["status"]["received"]["bytes"] / lived / 1e3),
            "rollouts out (KB/s)": mean(lambda one: one["status"]["sent"]["bytes"] / lived / 1e3),
            "heard peers, mean": mean(lambda one: len({maker for maker, *_ in one["got"]})),
            "a node's processor (%)": 100 * mean(lambda one: one["cpu"]),
            "a node's own memory (MB)": mean(lambda one: one["uss"] / 1e6),
            "the relay's processor (%)": 100 * used,
            "the relay's memory (MB)": relay.memory_info().rss / 1e6 if relay else 0.0,
            "files in the folder": sum(path.is_file() for path in place.rglob("*")),
        }


def simulated(nodes: int, seconds: float) -> Row:
    row, _ = simulate(NetConfig(nodes=nodes, seconds=seconds, warm_up=seconds / 2))
    kept = ("nodes", "rollouts in (KB/s)", "offers in (KB/s)", "out to a relay (KB/s)", "staleness p50 (s)")
    return {"how": "simulated", **{name: row[name] for name in kept}, "took (s)": row["seconds it took"]}


def breaks(rows: list[Row]) -> list[str]:
    """What is full first, by the largest real swarm of each kind: computed, not seen."""
    found = []
    for how in ("relay", "folder"):
        if not (of := [row for row in rows if row["how"] == how]):
            continue
        last = of[-1]
        if last["the relay's processor (%)"]:
            full = 100 * last["nodes"] / last["the relay's processor (%)"]
            found.append(f"- One core of a relay is full at some {full:,.0f} nodes of this kind.")
        full = 100 * (os.cpu_count() or 1) / max(0.01, last["a node's processor (%)"])
        found.append(f"- By a {how} this machine's processors are full at some {full:,.0f} nodes without models.")
    return found


def page(rows: list[Row]) -> str:
    names = list(dict.fromkeys(name for row in rows for name in row if name != "how"))
    lines = ["| | " + " | ".join(row["how"] for row in rows) + " |", "|---|" + "---|" * len(rows)]
    for name in names:
        cells = (f"{row[name]:,.3g}" if name in row and name != "nodes" else f"{row.get(name, '–')}" for row in rows)
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return "\n".join([*lines, "", *breaks(rows), ""])


def draw(rows: list[Row], path: Path) -> None:
    shown = (
        "round beside training, p50 (ms)",
        "rollouts in (KB/s)",
        "a node's own memory (MB)",
        "the relay's processor (%)",
    )
    figure = Figure(figsize=(13, 3.4), dpi=100, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for how, style in (("relay", "ko-"), ("folder", "ks--"), ("simulated", "k^:")):
            of = [(row["nodes"], row[name]) for row in rows if row["how"] == how and name in row]
            if of:
                axes.plot(*zip(*of, strict=True), style, label=how, fillstyle="none")
        axes.set(xscale="log", xlabel="nodes", ylim=(0, None))
        axes.set_title(name, fontsize=10)
        axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 8, 64])
    parser.add_argument("--simulated", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--seconds", type=float, default=60.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    rows: list[Row] = []
    for how, sizes in (("relay", args.nodes), ("folder", args.nodes), ("simulated", args.simulated)):
        for nodes in sizes:
            rows.append(simulated(nodes, 2 * args.seconds) if how == "simulated" else real(how, nodes, args.seconds))
            print(json.dumps(rows[-1]), flush=True)
    (args.out / "scale.json").write_text(json.dumps(rows, indent=1) + "\n")
    (args.out / "scale.md").write_text(page(rows))
    draw(rows, args.out / "scale.png")


if __name__ == "__main__":
    main()
