"""A round of N guppies on `pond` (I = 4, J = 4, G = 8): a loop over the nodes, all nodes stacked into one program, and
nodes spread over worker processes of one thread each.

    python benchmarks/stacked.py [--nodes 8] [--workers 2] [--rounds 10] [--repeats 3]

The contenders alternate; times are medians of seconds for a round, in answering and in learning. Workers are a
prototype: each holds its share of the nodes, and after answering they hand each other what they shared, as bytes.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from shoal.config import Config, make_config
from shoal.display import QuietDisplay
from shoal.folder import RunFolder
from shoal.learn.stacked import StackedLearner
from shoal.policy.company import Company
from shoal.policy.stacked import stack
from shoal.run import Run

Times = dict[str, float]


def make_run(config: Config, folder: Path) -> Run:
    return Run(config, RunFolder.create(folder, config.resolved().to_toml()), QuietDisplay())


def loop(run: Run, rounds: int) -> Times:
    return timed(
        rounds,
        lambda: [node.act() for node in run.nodes],
        lambda: [node.learn() for node in run.nodes],
    )


def stacked(run: Run, company: Company, rounds: int) -> Times:
    return timed(
        rounds,
        lambda: company.together([node.act for node in run.nodes]),
        lambda: company.together([node.learn for node in run.nodes]),
    )


def timed(rounds: int, act: Callable[[], Any], learn: Callable[[], Any]) -> Times:
    seconds = {"act": 0.0, "learn": 0.0}
    for _ in range(rounds):
        for name, call in (("act", act), ("learn", learn)):
            start = time.perf_counter()
            call()
            seconds[name] += (time.perf_counter() - start) / rounds
    return seconds


def worker(config: Config, folder: Path, number: int, workers: int, pipe: Connection) -> None:
    """Runs every `workers`-th node of the run whenever it is told to."""
    run = make_run(config, folder)
    torch.set_num_threads(1)
    mine = run.nodes[number::workers]
    others = [node.name for node in run.nodes if node not in mine]
    inboxes = run.swarm._inboxes
    while (told := pipe.recv()) != "end":
        if told == "act":
            for node in mine:
                node.act()
            pipe.send(list(inboxes[others[0]]))
            for name in others:
                inboxes[name].clear()
        else:
            for node in mine:
                inboxes[node.name] += told
                node.learn()
            pipe.send(None)
    run.close()


def spread(pipes: list[Connection], rounds: int) -> Times:
    messages: list[list[bytes]] = []

    def act() -> None:
        for pipe in pipes:
            pipe.send("act")
        messages[:] = [pipe.recv() for pipe in pipes]

    def learn() -> None:
        for number, pipe in enumerate(pipes):
            pipe.send([m for other, sent in enumerate(messages) if other != number for m in sent])
        for pipe in pipes:
            pipe.recv()

    return timed(rounds, act, learn)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=8)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--repeats", type=int, default=3)
    args = parser.parse_args()
    evaluation = {"every": 0, "questions": 1, "samples": 1}
    config = make_config({"swarm": {"nodes": args.nodes}, "evaluation": evaluation, "seed": 7}, "benchmark")
    context = multiprocessing.get_context("spawn")
    with tempfile.TemporaryDirectory() as scratch:
        ends = [context.Pipe() for _ in range(args.workers)]
        for number, (_, theirs) in enumerate(ends):
            folder = Path(scratch) / f"worker-{number}"
            context.Process(target=worker, args=(config, folder, number, args.workers, theirs), daemon=True).start()
        pipes = [mine for mine, _ in ends]
        plain, one = make_run(config, Path(scratch) / "loop"), make_run(config, Path(scratch) / "stacked")
        company = Company()
        policies: Any = [node.policy for node in one.nodes]
        for node, policy in zip(one.nodes, stack(policies, company), strict=True):
            node.policy, node.learner = policy, StackedLearner(policy, one.config.learner, 2e-4)
        contenders: dict[str, Callable[[], Times]] = {
            "loop": lambda: loop(plain, args.rounds),
            "stacked": lambda: stacked(one, company, args.rounds),
            f"{args.workers} workers": lambda: spread(pipes, args.rounds),
        }
        times: dict[str, list[Times]] = {name: [] for name in contenders}
        for _ in range(args.repeats + 1):  # the first warms up
            for name, contender in contenders.items():
                times[name].append(contender())
        for pipe in pipes:
            pipe.send("end")
        for run in (plain, one):
            run.close()
    print(f"a round of {args.nodes} guppies on {plain.placement}, {torch.get_num_threads()} threads")
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
