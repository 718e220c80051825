"""A stock GRPOTrainer with guppy in the swarm of strangers, as a program: `python trl_program.py NOTES ADDRESS`.

It goes on until it is stopped, and notes a line for each step: what TRL logs, and whose rollouts were in the batch.
"""

from __future__ import annotations

import json
import os
import sys
from importlib.resources import files
from typing import Any

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"

import torch
from strangers import SWARM
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

import shoal
from shoal_extras.trl import TRLNode


class Notes(TrainerCallback):
    """Writes a line for each step."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.makers: set[str] = set()

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
        with open(self.file, "a") as file:
            file.write(json.dumps({**logs, "step": state.global_step, "makers": sorted(self.makers)}) + "\n")


def main() -> None:
    notes, where, *steps = sys.argv[1:]
    torch.set_num_threads(1)
    callback = Notes(notes)
    args = GRPOConfig(
        output_dir=f"{notes}-out",
        max_steps=int(steps[0]) if steps else 1_000_000,
        num_generations=8,
        per_device_train_batch_size=64 // int(os.environ.get("WORLD_SIZE", "1")),
        max_completion_length=16,
        learning_rate=2e-4,
        use_cpu=True,
        bf16=False,
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    with TRLNode(connect=where, swarm=SWARM, suite="pond", peers=4) as node:
        hooks = node.hooks

        def rollout_func(prompts: Any, trainer: Any) -> Any:
            rows = node.rollout_func(prompts, trainer)
            callback.makers = set(rows["shoal_maker"])
            return rows

        hooks["rollout_func"] = rollout_func
        hooks["callbacks"].append(callback)
        model = os.path.join(str(files(shoal)), "guppy")
        print("training", flush=True)
        GRPOTrainer(model, args=args, **hooks).train()
    print("ended", flush=True)


if __name__ == "__main__":
    main()
