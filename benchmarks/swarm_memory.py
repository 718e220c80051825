"""What the swarm adds to a process's memory, and whether that grows while others come and go."""

from __future__ import annotations

import argparse
import gc
import json
import multiprocessing
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psutil
from swarm_node import TASKS, Spec, alone, live_together, program, relays

from shoal.config.tasks import TasksConfig


def bare() -> float:
    """Bytes of this process with what is no part of the swarm."""
    for round in range(4096):
        TASKS.draw(1, "cache", round)
    gc.collect()
    return psutil.Process().memory_info().rss


def memory(folder: Path, _: argparse.Namespace) -> dict[str, float]:
    """A process with link, admission and tasks that hears 7 nodes of 20 rollouts a second, less one of tasks alone."""
    with relays(1) as (where,):
        start = time.time() + 12
        watched = Spec(str(folder / "watched"), start, 40, [where], sample=1.0)
        process = alone(watched, folder / "spec")
        without = subprocess.run([sys.executable, __file__], capture_output=True, text=True, check=True)
        live_together([Spec(str(folder / f"m{n}"), start, 40, [where], sample=1.0) for n in range(7)])
        process.wait()
    result = json.loads(Path(watched.out).read_text())
    sizes = [size for _, size in result["memory"]]
    from shoal.sandbox.verifier import Verifier

    with Verifier(TasksConfig()) as verifier:
        question = TASKS.draw(1, "memory")[0]
        verifier.score([(question.id, ["1"])])
        worker = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
    return {
        "process without a swarm (MB)": float(without.stdout) / 1e6,
        "process with it, largest (MB)": max(sizes) / 1e6,
        "rollouts it admitted": result["count"],
        "memory of the swarm (MB)": (max(sizes) - float(without.stdout)) / 1e6,
        "a verifier's process, besides (MB)": worker / 1e6,
    }


def soak(folder: Path, args: argparse.Namespace) -> dict[str, float]:
    """Four nodes at 20 rollouts a second through a relay, while others come with new keys, and go after ten seconds."""
    with ExitStack() as stack:
        where = "127.0.0.1:18700"
        relay = psutil.Process(stack.enter_context(program("relay", "--listen", where)))
        start = time.time() + 5
        specs = [Spec(str(folder / f"s{n}"), start, args.soak, [where], sample=2.0) for n in range(4)]
        visits = [
            Spec(str(folder / f"v{n}"), start + 12 * n, 10, [where], sample=2.0, early=2.0)
            for n in range(int(args.soak / 12))
        ]
        context = multiprocessing.get_context("fork")
        queue = context.Queue()
        watcher = context.Process(target=watch_memory, args=(relay.pid, start, args.soak, queue))
        watcher.start()
        lives = live_together([*specs, *visits])[:4]
        of_relay: list[tuple[float, int]] = queue.get()
        watcher.join()
    growths = [growth(one["memory"], start, args.soak) for one in lives]
    return {
        "seconds": args.soak,
        "rollouts admitted by a node, mean": statistics.fmean(one["count"] for one in lives),
        "visitors": len(visits),
        "a node's memory, first sample (MB)": lives[0]["memory"][0][1] / 1e6,
        "a node's memory, last sample (MB)": lives[0]["memory"][-1][1] / 1e6,
        "memory, last quarter / second": max(growths),
        "relay's memory, first sample (MB)": of_relay[0][1] / 1e6,
        "relay's memory, last sample (MB)": of_relay[-1][1] / 1e6,
        "relay's memory, last quarter / second": growth(of_relay, start, args.soak),
        "faults": sum(one["status"]["faults"] for one in lives),
    }


def watch_memory(pid: int, start: float, seconds: float, queue: Any) -> None:
    process, samples = psutil.Process(pid), []
    while time.time() < start + seconds:
        if time.time() >= start:
            samples.append((time.time(), process.memory_info().rss))
        time.sleep(2)
    queue.put(samples)


def growth(samples: Sequence[tuple[float, int]], start: float, seconds: float) -> float:
    """The mean of the last quarter over that of the second, by when caches and neighbours are there."""

    def mean(first: float, last: float) -> float:
        return statistics.fmean(size for at, size in samples if start + first * seconds <= at <= start + last * seconds)

    return mean(0.75, 1.0) / mean(0.25, 0.5)


if __name__ == "__main__":
    print(bare())
