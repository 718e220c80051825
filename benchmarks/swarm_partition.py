"""A slow network that loses packets and falls apart for a while."""

from __future__ import annotations

import argparse
import json
import statistics
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from swarm_node import Spec, alone, program
from wires import Wires, inside

CUT, BEFORE, AFTER = 30.0, 20.0, 30.0
DELAY, LOSS = 0.1, 0.05


def netem(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    """Two relays and six nodes, each on a host of its own. One relay and two nodes are cut off together, with a relay;
    one more node is cut off alone. The scripted training takes 200 ms a round, which shares one rollout of 1 KB: what
    comes by links of this kind is some 40 KB a second."""
    hosts = ["relay-a", "relay-b", *(f"node-{n}" for n in range(6))]
    away = ("relay-b", "node-3", "node-4")
    lonely = "node-5"
    address = {host: f"10.77.7.{n + 10}" for n, host in enumerate(hosts)}
    with ExitStack() as stack:
        wires = stack.enter_context(Wires(address, DELAY, LOSS))
        a, b = (f"tcp/{address[host]}:7447" for host in ("relay-a", "relay-b"))
        stack.enter_context(program("relay", "--listen", a, "--exempt", address["relay-b"], before=inside("relay-a")))
        stack.enter_context(program("relay", "--listen", b, "--connect", a, before=inside("relay-b")))
        start = time.time() + 25
        processes = []
        for n in range(6):
            order = [b, a] if f"node-{n}" in away else [a, b]
            spec = Spec(str(folder / f"node-{n}"), start, BEFORE + CUT + AFTER, order, train=0.2, words=10)
            processes.append(alone(spec, folder / f"spec-{n}", inside(f"node-{n}")))
        time.sleep(max(0.0, start + BEFORE - time.time()))
        cut = time.time()
        sides = {host: "b" if host in away else "lonely" if host == lonely else "a" for host in hosts}
        wires.cut(sides)
        time.sleep(CUT)
        healed = time.time()
        wires.cut({})
        for process in processes:
            process.wait()
    lives = {f"node-{n}": json.loads((folder / f"node-{n}").read_text()) for n in range(6)}
    return partition_figures(lives, sides, cut, healed)


def partition_figures(
    lives: dict[str, dict[str, Any]], sides: dict[str, str], cut: float, healed: float
) -> dict[str, float]:
    names = {one["name"]: host for host, one in lives.items()}
    resumed, every, within = [], [], 0
    for host, one in lives.items():
        came: dict[str, float] = {}
        for name, _, at in one["got"]:
            other = names[name]
            if sides[other] != sides[host] and at > healed:
                came.setdefault(other, at - healed)
            if sides[other] == sides[host] and cut + 12 < at < healed:
                within += 1
        missing = sum(sides[other] != sides[host] for other in lives) - len(came)
        resumed.append(min(came.values(), default=float("inf")))
        every += [*came.values(), *[float("inf")] * missing]
    before = [took for one in lives.values() for at, took in one["rounds"] if at < cut - 1]
    after = [took for one in lives.values() for at, took in one["rounds"] if at >= cut - 1]
    usual = statistics.median(before)
    return {
        "rounds before the cut": len(before),
        "rounds since": len(after),
        "round, median before (ms)": 1e3 * usual,
        "round, longest before (ms)": 1e3 * max(before),
        "round, median since (ms)": 1e3 * statistics.median(after),
        "round, longest since (ms)": 1e3 * max(after),
        "longest pause / usual spread": (max(after) - usual) / max(max(before) - usual, 0.01),
        "rollouts within sides while cut": within,
        "sharing resumed after healing (s)": max(resumed),
        "every pair shares again after (s)": max(every),
        "faults": sum(one["status"]["faults"] for one in lives.values()),
    }
