"""Many nodes on three relays: who is heard, and what a node's socket receives; simulated for up to 10,000 nodes."""

from __future__ import annotations

import argparse
import multiprocessing
import os
import re
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import psutil
from swarm_node import Spec, live_together, relays, waited


def swim(folder: Path, number: int) -> tuple[list[dict[str, Any]], float]:
    """`number` nodes at 1 rollout a second on three relays; and the bytes that a node's socket received a second."""
    with relays(3, 18_800) as where:
        start = time.time() + 8 + number / 3
        specs = [
            Spec(str(folder / f"{number}-{n}"), start, 40, [*where[n % 3 :], *where[: n % 3]], rate=1.0)
            for n in range(number)
        ]
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        watcher = context.Process(target=watch_sockets, args=(where, start + 5, 30, queue))
        watcher.start()
        lives = live_together(specs)
        rate: float = queue.get()
        watcher.join()
        return lives, rate / number


def watch_sockets(where: Sequence[str], start: float, seconds: float, queue: Any) -> None:
    """Bytes a second that all sockets of nodes received from relays, by the kernel's count."""

    def total() -> int:
        ports = " or ".join(f"dport = :{one.rpartition(':')[2]}" for one in where)
        told = subprocess.run(["ss", "-tinpH", "state", "established", f"( {ports} )"], capture_output=True, text=True)
        sockets = re.findall(r"pid=(\d+).*\n.*bytes_received:(\d+)", told.stdout)
        return sum(int(count) for pid, count in sockets if int(pid) not in others)

    siblings = psutil.Process(os.getppid()).children()
    others = {one.pid for one in siblings if "relay" in one.cmdline()}  # they also connect to each other
    time.sleep(max(0.0, start - time.time()))
    before = total()
    time.sleep(seconds)
    queue.put((total() - before) / seconds)


def crowd(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    lives, _rate = swim(folder, 64)
    names = {one["name"] for one in lives}
    heard = {node for one in lives for node, *_ in one["got"]}
    fewer = [one for one in lives if len({node for node, *_ in one["got"]}) < min(8, one["status"]["wanted"])]
    waits = sorted(waited(lives))
    return {
        "nodes that lived": len(lives),
        "nodes of 64 that nobody heard": len(names - heard),
        "nodes of 64 that heard fewer than wanted": len(fewer),
        "nodes heard by each, mean": statistics.fmean(len({node for node, *_ in one["got"]}) for one in lives),
        "latency p50 of 64 (ms)": 1e3 * waits[len(waits) // 2],
        "latency p99 of 64 (ms)": 1e3 * waits[int(len(waits) * 0.99)],
        "faults": sum(one["status"]["faults"] for one in lives),
    }


def bytes_(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    rates = {number: swim(folder, number)[1] for number in (8, 64)}
    figures = {f"bytes in, {number} nodes (KB/s)": rate / 1e3 for number, rate in rates.items()}
    figures["bytes in, 64 nodes / 8"] = rates[64] / rates[8]
    simulated = {number: simulate(number) for number in (8, 64, 512, 4096, 10_000)}
    for number, rate in simulated.items():
        figures[f"bytes in, simulated, {number} nodes (KB/s)"] = rate / 1e3
    figures["bytes in, simulated, 10000 nodes / 64"] = simulated[10_000] / simulated[64]
    return figures


TOKEN, MESSAGE, STAY, HOUR = 180, 10_600, 1800.0, 3600.0
"""Bytes of a presence on the wire, and of a rollout; seconds that a node of the simulation stays."""


def simulate(number: int) -> float:
    """Bytes in a second for the mean node of `number`: the real choice of regions and neighbours, on a network that is
    a set. Each node makes a rollout a second, and goes after half an hour, when another comes."""
    from shoal.transports.base import shard_of
    from shoal.transports.zenoh.neighbours import ENOUGH, Neighbours, find_region, random_branch

    random = Random(number)
    ids = [random.randbytes(32).hex() for _ in range(number)]
    by_prefix: dict[str, set[str]] = {}
    for id in ids:
        for digits in range(4):
            by_prefix.setdefault(shard_of(id)[:digits], set()).add(id)
    totals = []
    for id in random.sample(ids, min(number, 500)):
        node, told = Neighbours(id, random), 0

        def ask(prefix: str, id: str = id) -> set[str]:
            nonlocal told
            found = by_prefix.get(prefix, set()) - {id}
            told += len(found)
            return found

        peers = ask(find_region(ask, random_branch(random), ENOUGH * node.wanted))
        node.found(peers, (), 0.0)
        chosen = node.choose(0.0)
        comings_and_goings = 2 * len(peers) / STAY
        totals.append(told * TOKEN / STAY + comings_and_goings * TOKEN + len(chosen) * MESSAGE)
    return statistics.fmean(totals)
