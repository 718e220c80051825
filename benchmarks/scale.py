"""What a swarm costs as it grows: real nodes on this machine (relay, folder, archive), and simulated ones.

    python benchmarks/scale.py --out docs/reference    # 2, 8, 64 real, 1,000 and 10,000 simulated: 10 minutes
    python benchmarks/scale.py --out /tmp/scale --nodes 2 8 --simulated 1000 --seconds 10

Real nodes are processes with sockets, signatures and full admission, but no model (`swarm_node`): a round sleeps two
seconds in place of training and shares one rollout of 4 KB. With an archive, `shoal archive` follows the relay.
Simulated ones choose neighbours, admit and sample by the real code (`netsim`), a round of 10 s. Writes `scale.md` and
`scale.png`; both take no time from `--rows FILE`, which has what it printed.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import psutil
import pyarrow.parquet as pq
from matplotlib.figure import Figure
from netsim import simulate
from simnet.config import NetConfig
from swarm_node import SWARM, Spec, live_together, relays

from shoal_extras.archive.follow import HEARD

TRAINING = 2.0
KINDS = ("relay", "folder", "archive")
Row = dict[str, Any]


def spent(process: psutil.Process) -> float:
    """Seconds of processor time of a process and its children."""
    return sum(sum(each.cpu_times()[:2]) for each in (process, *process.children(recursive=True)))


def real(how: str, nodes: int, seconds: float) -> Row:
    """A swarm of processes that share by a `relay` or a `folder`, or by a relay that an `archive` follows."""
    with tempfile.TemporaryDirectory() as room, relays(how != "folder", 18_900) as where:
        place, kept = Path(room) / "place", Path(room) / "kept"
        place.mkdir()
        [relay] = psutil.Process(os.getpid()).children() if where else [None]
        archiver = None
        if how == "archive":
            words = ["archive", *where, str(kept), "--swarm", SWARM]
            archiver = psutil.Popen([sys.executable, "-m", "shoal", *words], stdout=subprocess.DEVNULL)
            time.sleep(8)
        start = time.time() + 8 + nodes / 3
        connect = where or [str(place)]
        specs = [Spec(f"{room}/{n}.json", start, seconds, connect, train=TRAINING, words=50) for n in range(nodes)]
        watched = archiver or relay
        began, before = time.time(), spent(watched) if watched else 0.0
        lives = live_together(specs)
        rounds = sorted(1e3 * (took - TRAINING) for one in lives for _, took in one["rounds"])
        lived = seconds + 3

        def mean(of: Any) -> float:
            return statistics.fmean(of(one) for one in lives)

        shared = sum(len(one["rounds"]) for one in lives)
        row: Row = {
            "how": how,
            "nodes": nodes,
            "nodes that ended well": len(lives),
            "round beside training, p50 (ms)": rounds[len(rounds) // 2],
            "round beside training, p99 (ms)": rounds[int(0.99 * len(rounds))],
            "rollouts in (KB/s)": mean(lambda one: one["status"]["received"]["bytes"] / lived / 1e3),
            "rollouts out (KB/s)": mean(lambda one: one["status"]["sent"]["bytes"] / lived / 1e3),
            "makers heard": mean(lambda one: len({maker for maker, *_ in one["got"]})),
            "a node's processor (%)": 100 * mean(lambda one: one["cpu"]),
            "a node's own memory (MB)": mean(lambda one: one["uss"] / 1e6),
        }
        if watched:
            row["relay or archive: processor (%)"] = 100 * (spent(watched) - before) / (time.time() - began)
            family = (watched, *watched.children(recursive=True))
            row["relay or archive: memory (MB)"] = sum(each.memory_info().rss for each in family) / 1e6
        if how == "folder":
            files = [path for path in place.rglob("*") if path.is_file()]
            row |= {"files": len(files), "kept (KB a rollout)": sum(f.stat().st_size for f in files) / shared / 1e3}
        if archiver:
            archiver.send_signal(signal.SIGINT)
            archiver.wait(120)
            files = [path for path in kept.rglob("*.parquet") if path.is_file()]
            groups = sum(pq.read_metadata(f).num_rows for f in files if f.parent.name == "groups")
            row |= {"files": len(files), "kept (% of what was shared)": 100 * groups / shared}
            row["kept (KB a rollout)"] = sum(f.stat().st_size for f in files) / max(1, groups) / 1e3
        return row


def simulated(nodes: int, seconds: float) -> Row:
    row, _ = simulate(NetConfig(nodes=nodes, seconds=seconds, warm_up=seconds / 2))
    kept = ("nodes", "rollouts in (KB/s)", "offers in (KB/s)", "staleness p50 (s)")
    out = {"rollouts out (KB/s)": row["out to a relay (KB/s)"]}
    carried = nodes * (row["rollouts in (KB/s)"] + row["out to a relay (KB/s)"]) / 1e3
    took = {"a relay would carry (MB/s)": carried, "simulating took (s)": row["seconds it took"]}
    return {"how": "simulated", **{name: row[name] for name in kept}, **out, **took}


def breaks(rows: list[Row]) -> list[str]:
    """What is full first: computed from the largest swarm of each kind, not seen."""
    found = []
    for how in KINDS:
        last = [row for row in rows if row["how"] == how][-1:]
        for row in last:
            own = max(0.01, row["a node's processor (%)"])
            if how == "folder":
                files = row["files"] / row["nodes"]
                found.append(
                    f"- **Folder**: each node has {files:.0f} files there. Among {row['nodes']} a node takes "
                    f"{own:.1f} % of a core; if it grows with their number, a tenth of a core at some "
                    f"{10 * row['nodes'] / own:,.0f} nodes."
                )
            else:
                used = row["relay or archive: processor (%)"]
                found.append(
                    f"- **{how.capitalize()}**: one core is full at some {100 * row['nodes'] / used:,.0f} nodes."
                )
                rate = row["rollouts out (KB/s)"] + row["rollouts in (KB/s)"]
                network = f"A network of 1 Gbit/s is full at some {125_000 / rate:,.0f}."
                found[-1] += f" {network}" if how == "relay" else f" It hears {HEARD} at most."
    for row in rows:
        if row["how"] == "simulated":
            load = row["a relay would carry (MB/s)"]
            found.append(f"- {row['nodes']:,.0f} simulated nodes: {load:,.0f} MB/s at relays, of 125 MB/s at 1 Gbit/s.")
    return found


def table(rows: list[Row]) -> list[str]:
    names = list(dict.fromkeys(name for row in rows for name in row if name not in ("how", "nodes")))
    heads = [f"{row['how']}, {row['nodes']:,.0f}" for row in rows]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(rows)]
    for name in names:
        lines.append(f"| {name} | " + " | ".join(f"{row[name]:,.3g}" if name in row else "" for row in rows) + " |")
    return lines


def page(rows: list[Row], minutes: float, load: float) -> str:
    """The page of the documentation."""
    return "\n".join(
        [
            "# What a swarm costs as it grows",
            "",
            "    python benchmarks/scale.py --out docs/reference",
            "",
            f"Made in {minutes:.0f} minutes on {os.cpu_count()} cores, with {load:.1f} other programs beside it on the",
            "mean: a quiet machine is faster; bytes and memory are the same. Real nodes are processes without a",
            "model, with a round of 2 s and a rollout of 4 KB; simulated ones have rounds of 10 s",
            "([how](../studies/network/README.md)).",
            "",
            "![time, bytes, memory and load by the number of nodes](scale.png)",
            "",
            *table(rows),
            "",
            "## What is full first",
            "",
            "Computed from the largest real swarm of each kind, not seen, with a rollout every 2 s from each node:",
            "",
            *breaks(rows),
            "",
        ]
    )


def draw(rows: list[Row], path: Path) -> None:
    shown = (
        "round beside training, p50 (ms)",
        "rollouts in (KB/s)",
        "a node's own memory (MB)",
        "relay or archive: processor (%)",
    )
    figure = Figure(figsize=(13, 3.4), dpi=100, layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown)), shown, strict=True):
        for how, style in zip((*KINDS, "simulated"), ("ko-", "ks--", "kd-.", "k^:"), strict=True):
            of = [(row["nodes"], row[name]) for row in rows if row["how"] == how and name in row]
            if of:
                axes.plot(*zip(*of, strict=True), style, label=how, fillstyle="none")
        axes.set(xscale="log", xlabel="nodes", ylim=(0, None))
        sizes = sorted({row["nodes"] for row in rows if name in row})
        axes.set_xticks(sizes, [f"{size:,.0f}" for size in sizes])
        axes.set_xticks([], minor=True)
        axes.set_title(name, fontsize=10)
        if sizes:
            axes.legend(fontsize=8)
    figure.savefig(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--nodes", type=int, nargs="*", default=[2, 8, 64])
    parser.add_argument("--simulated", type=int, nargs="*", default=[1_000, 10_000])
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--rows", type=Path, help="what it printed before, in place of a run")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    begun, load = time.monotonic(), psutil.getloadavg()[1]  # of the last five minutes, before this began
    rows: list[Row] = [json.loads(line) for line in args.rows.read_text().splitlines()] if args.rows else []
    about = rows.pop() if rows else {}
    for how, sizes in () if rows else (*((kind, args.nodes) for kind in KINDS), ("simulated", args.simulated)):
        for nodes in sizes:
            rows.append(simulated(nodes, 3 * args.seconds) if how == "simulated" else real(how, nodes, args.seconds))
            print(json.dumps(rows[-1]), flush=True)
    if not about:
        about = {"minutes": (time.monotonic() - begun) / 60, "load": load}
        print(json.dumps(about))
    (args.out / "scale.md").write_text(page(rows, **about))
    draw(rows, args.out / "scale.png")


if __name__ == "__main__":
    main()
