"""A round of N guppies on `pond` (I = 4, J = 4, G = 8): a loop over the nodes, all nodes stacked into one program, and
nodes kept by worker processes (`shoal.parallel.workers`).

    python benchmarks/stacked.py [--nodes 8] [--workers 2] [--rounds 10] [--repeats 3]

The contenders alternate; times are medians of seconds for a round, in answering and in learning. Each has all cores:
the loop and the stack as threads, the workers as processes.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import torch

from shoal.cli.display import QuietDisplay
from shoal.config.load import make_config
from shoal.runs.folder import RunFolder
from shoal.runs.run import Run

Times = dict[str, float]


def make_run(folder: Path, nodes: int, **swarm: Any) -> Run:
    evaluation = {"every": 0, "questions": 1, "samples": 1}
    settings = {"swarm": {"nodes": nodes, **swarm}, "policy": {"device": "cpu"}, "evaluation": evaluation, "seed": 7}
    config = make_config(settings, "benchmark")
    return Run(config, RunFolder.create(folder, config.resolved().to_toml()), QuietDisplay())


def timed(run: Run, rounds: int) -> Times:
    seconds = {"act": 0.0, "learn": 0.0}
    for _ in range(rounds):
        for name, calls in (("act", [n.act for n in run.nodes]), ("learn", [n.learn for n in run.nodes])):
            start = time.perf_counter()
            each: Callable[[list[Callable[[], Any]]], Any] = run._each
            each(calls)
            seconds[name] += (time.perf_counter() - start) / rounds
    return seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    kinds: dict[str, dict[str, Any]] = {
        "loop": {"workers": 0, "stacked": False},
        "stacked": {"workers": 0, "stacked": True},
        f"{args.workers} workers": {"workers": args.workers, "stacked": False},
    }
    with tempfile.TemporaryDirectory() as scratch, ExitStack() as stack:
        runs = {
            name: stack.enter_context(closing(make_run(Path(scratch) / name, args.nodes, **swarm)))
            for name, swarm in kinds.items()
        }
        times: dict[str, list[Times]] = {name: [] for name in runs}
        for _ in range(args.repeats + 1):  # the first warms up
            for name, run in runs.items():
                times[name].append(timed(run, args.rounds))
    print(
        f"a round of {args.nodes} guppies on {os.cpu_count()} cores; {torch.get_num_threads()} threads in one process"
    )
    medians = {
        name: {part: statistics.median(t[part] for t in found[1:]) for part in ("act", "learn")}
        for name, found in times.items()
    }
    base = medians["loop"]
    for name, median in medians.items():
        parts = [f"{part} {median[part]:.3f} s ({base[part] / median[part]:.2f})" for part in median]
        whole = sum(median.values())
        print(f"{name:12} {whole:.3f} s ({sum(base.values()) / whole:.2f} times as fast): {', '.join(parts)}")


if __name__ == "__main__":
    main()
