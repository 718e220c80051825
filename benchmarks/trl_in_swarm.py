"""What a swarm gives to a trainer of TRL: one alone, and the same one in a swarm of two and of four.

    python benchmarks/trl_in_swarm.py OUT.json --steps 80 --seeds 3

All train guppy on the pond, 8 groups of 8 answers a step; in a swarm up to 4 of the 8 are peers'. The trainers of a
swarm are threads that begin each step together, so the result depends on no machine. Seconds are those of the processor
in a trainer's thread, so they depend on no load; answers are scored by another process, which is not counted.

The figure is the share of right answers of a node to its own new questions, `reward/local`, over the last ten steps:
after equal steps, and at equal time, which is when the trainer alone is done. Held-out pass@1 is
that of the model after equal steps.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
import threading
import time
from importlib.resources import files
from pathlib import Path
from statistics import fmean
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import shoal
from shoal.transports.memory import MemorySwarm
from shoal_extras.trl import TRLNode

GUPPY = str(files("shoal") / "guppy")
SIZES = (1, 2, 4)
LAST = 10
"""Steps of which the mean is told."""


class Clock(TrainerCallback):
    """Notes the processor's seconds and the figures of each step, and keeps the model of the step `equal`."""

    def __init__(self, equal: int, folder: str) -> None:
        self.equal, self.folder = equal, folder
        self.rows: list[dict[str, float]] = []

    def on_step_end(
        self, args: Any, state: Any, control: Any, model: Any = None, processing_class: Any = None, **_: Any
    ) -> None:
        if state.global_step == self.equal:
            model.save_pretrained(self.folder)
            processing_class.save_pretrained(self.folder)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        if logs and "reward/local" in logs:
            kept = {name: float(logs.get(name, 0)) for name in ("reward/local", "rollouts/sampled", "gradient/peers")}
            self.rows.append(kept | {"seconds": time.thread_time()})


class Member:
    """A trainer in a swarm, with its node."""

    def __init__(
        self, swarm: MemorySwarm, name: str, seed: int, steps: int, equal: int, together: threading.Barrier
    ) -> None:
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock(equal, self.folder.name)
        self.node = TRLNode(swarm, name=name, suite="pond", peers=4, seed=seed)
        hooks = self.node.hooks

        def rollout_func(prompts: Any, trainer: Any) -> Any:
            together.wait()
            return self.node.rollout_func(prompts, trainer)

        args = GRPOConfig(
            output_dir=self.folder.name,
            max_steps=steps,
            num_generations=8,
            per_device_train_batch_size=64,
            max_completion_length=16,
            learning_rate=2e-4,
            lr_scheduler_type="constant",
            use_cpu=True,
            bf16=False,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
        )
        hooks |= {"rollout_func": rollout_func, "callbacks": [*hooks["callbacks"], self.clock]}
        self.trainer = GRPOTrainer(GUPPY, args=args, **hooks)

    def train(self) -> None:
        start = time.thread_time()
        self.trainer.train()
        self.node.close()
        self.rows = [row | {"seconds": row["seconds"] - start} for row in self.clock.rows]

    def figures(self) -> dict[str, Any]:
        with self.folder as folder:
            held_out = shoal.evaluate(folder, suite="pond", questions=64, samples=1).pass_at(1).value
        return {"rows": self.rows, "held_out": held_out}


def swarm_of(size: int, seed: int, steps: int, equal: int) -> dict[str, Any]:
    """The figures of each trainer of a swarm."""
    swarm, together = MemorySwarm(), threading.Barrier(size)
    names = [f"node-{n}" for n in range(1, size + 1)]
    members = {name: Member(swarm, name, seed, steps, equal, together) for name in names}
    threads = [threading.Thread(target=member.train) for member in members.values()]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {name: member.figures() for name, member in members.items()}


def told(runs: list[dict[str, Any]]) -> list[str]:
    """A row for each size of swarm: means over seeds and nodes, and ratios to the trainer alone."""
    lines = ["| swarm of | seconds a step | right, equal steps | right, equal time | of peers | held-out pass@1 |"]
    lines.append("|---|---|---|---|---|---|")
    base: tuple[float, ...] | None = None
    for size in SIZES:
        columns: list[list[float]] = [[], [], [], [], []]
        for run in (run for run in runs if run["size"] == size):
            [alone] = (each for each in runs if each["size"] == 1 and each["seed"] == run["seed"])
            limit = alone["nodes"]["node-1"]["rows"][-1]["seconds"]
            for node in run["nodes"].values():
                rows = node["rows"]
                rate = rows[-1]["seconds"] / len(rows)
                until = rows[: max(1, int(limit / rate))]  # those that it does in that time, were it to go on: all
                columns[0].append(rate)
                columns[1].append(fmean(row["reward/local"] for row in rows[run["equal"] - LAST : run["equal"]]))
                columns[2].append(fmean(row["reward/local"] for row in until[-LAST:]))
                columns[3].append(fmean(row["gradient/peers"] for row in rows))
            columns[4] += [node["held_out"] for node in run["nodes"].values()]
        means = tuple(map(fmean, columns))
        base = base or means
        cells = (
            f"{means[0] / base[0]:.2f} x",
            *(f"{mean:.3f}" for mean in means[1:3]),
            f"{means[3]:.0%}",
            f"{means[4]:.3f}",
        )
        lines.append(f"| {size} | " + " | ".join(cells) + " |")
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--more", type=float, default=1.15, help="steps in a swarm, times --steps: for equal time")
    args = parser.parse_args()
    torch.set_num_threads(1)
    runs: list[dict[str, Any]] = json.loads(args.out.read_text()) if args.out.exists() else []
    for seed in range(args.seeds):
        for size in SIZES:
            if any(run["seed"] == seed and run["size"] == size for run in runs):
                continue
            steps = args.steps if size == 1 else round(args.steps * args.more)
            runs.append(
                {"seed": seed, "size": size, "equal": args.steps, "nodes": swarm_of(size, seed, steps, args.steps)}
            )
            args.out.write_text(json.dumps(runs))
        print("\n".join(told(runs)), flush=True)


if __name__ == "__main__":
    main()
