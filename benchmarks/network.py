"""What the networked swarm costs and bears: processes of their own, real sockets, full admission, no models.

    python benchmarks/network.py latency      # 8 nodes, 20 rollouts of 10 KB a second each: by a relay, and as peers
    python benchmarks/network.py crowd        # 64 nodes on 3 relays: is everybody heard, does everybody hear enough
    python benchmarks/network.py bytes        # what a node hears among 8 and among 64; simulated up to 10,000
    python benchmarks/network.py netem        # (root) 100 ms, 5 % of packets lost, and a partition of 30 s
    python benchmarks/network.py memory       # what the swarm adds to a process
    python benchmarks/network.py soak --soak 600
    ... [--json]                              # one object of name to ratio, measured over what is at most asked

Latency is from `share()` until `receive()` would give the rollout, by one clock. Figures of a busy machine are noisy:
the load is printed.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import time
from pathlib import Path

import psutil
from swarm_bytes import bytes_, crowd
from swarm_memory import memory, soak
from swarm_node import SWARM, TASKS, Spec, identity_of, live_together, relays, waited
from swarm_partition import netem

ASKED: dict[str, tuple[str, float]] = {
    "latency p50, relay (ms)": ("at most", 3),
    "latency p99, relay (ms)": ("at most", 20),
    "lost, relay": ("at most", 0),
    "latency p50, peers (ms)": ("at most", 3),
    "latency p99, peers (ms)": ("at most", 20),
    "lost, peers": ("at most", 0),
    "nodes of 64 that nobody heard": ("at most", 0),
    "nodes of 64 that heard fewer than wanted": ("at most", 0),
    "bytes in, 64 nodes / 8": ("at most", 1.2),
    "bytes in, simulated, 10000 nodes / 64": ("at most", 1.2),
    "longest pause / usual spread": ("at most", 1),
    "sharing resumed after healing (s)": ("at most", 10),
    "memory of the swarm (MB)": ("at most", 60),
    "memory, last quarter / second": ("at most", 1.05),
}


def latency(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    figures: dict[str, float] = {}
    for how in ("relay", "peers"):
        with relays(1) as (where,):
            start = time.time() + 8
            specs = [Spec(str(folder / f"{how}{n}"), start, 20, [where]) for n in range(8)]
            if how == "peers":
                hub = "127.0.0.1:18500"
                for n, spec in enumerate(specs):
                    spec.connect, spec.listen = ([hub], ["127.0.0.1:0"]) if n else ([], [hub])
            for spec in specs:  # in the cache of all before they are forked
                maker = identity_of(spec)
                for round in range(1, 420):
                    TASKS.draw(1, SWARM, maker.id, round)
            lives = live_together(specs)
        waits = sorted(waited(lives))
        expected = sum(len(one["shared"]) for one in lives) * 7
        figures |= {
            f"latency p50, {how} (ms)": 1e3 * waits[len(waits) // 2],
            f"latency p99, {how} (ms)": 1e3 * waits[int(len(waits) * 0.99)],
            f"latency max, {how} (ms)": 1e3 * waits[-1],
            f"rollouts received, {how}": len(waits),
            f"lost, {how}": expected - len(waits),
            f"neighbours at the start, least, {how}": min(len(one["neighbours"]) for one in lives),
        }
    return figures


WORKS = {"latency": latency, "crowd": crowd, "bytes": bytes_, "netem": netem, "memory": memory, "soak": soak}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("work", choices=list(WORKS))
    parser.add_argument("--soak", type=float, default=600, metavar="SECONDS")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        figures = WORKS[args.work](Path(scratch), args)
    if args.json:
        ratios = {name: figures[name] / (ASKED[name][1] or 1) for name in figures if name in ASKED}
        return print(json.dumps(ratios))
    load = os.getloadavg()[0]
    print(f"{args.work}: {psutil.cpu_count()} cores, load {load:.1f} at the end")
    for name, value in figures.items():
        asked = f"   {ASKED[name][0]} {ASKED[name][1]:g}" if name in ASKED else ""
        print(f"{name:48} {value:12,.2f}{asked}")


if __name__ == "__main__":
    main()
