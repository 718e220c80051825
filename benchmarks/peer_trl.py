"""One GRPO step of TRL on the workload, in TRL's own environment: seconds to generate and to learn, peak memory.

    python peer_trl.py WORKLOAD OUT.json [--memory] [--device cuda]

Writes the batch that it learned from beside its figures. `--memory`: one micro-batch alone, with gradient
checkpointing, to see TRL's smallest peak.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from pathlib import Path

import torch
from datasets import Dataset
from transformers import TrainerCallback
from trl import GRPOConfig, GRPOTrainer

workload, out, memory, cuda = Path(sys.argv[1]), Path(sys.argv[2]), "--memory" in sys.argv, "cuda" in sys.argv
chats = json.loads((workload / "workload.json").read_text())["chats"]
marks: dict[str, float] = {}
batch: dict[str, list[list[int]]] = {}
torch.set_num_threads(2)
torch.manual_seed(0)


class Timed(GRPOTrainer):
    def _generate_and_score_completions(self, inputs):
        marks["start"] = time.perf_counter()
        result = super()._generate_and_score_completions(inputs)
        marks["generated"] = time.perf_counter()
        for part in ("prompt", "completion"):
            ids, mask = result[f"{part}_ids"], result[f"{part}_mask"]
            batch[part] = [row[m.bool()].tolist() for row, m in zip(ids, mask, strict=True)]
        batch["advantages"] = result["advantages"].tolist()
        return result


class Clock(TrainerCallback):
    def on_step_end(self, *_args, **_kwargs):
        marks["end"] = time.perf_counter()


def reward(completions, **_):
    """Alternating, so that every group has something to learn."""
    return [float(i % 2) for i in range(len(completions))]


trainer = Timed(
    model=str(workload / "model"),
    reward_funcs=reward,
    args=GRPOConfig(
        output_dir=str(out.with_suffix("")),
        max_steps=1,
        per_device_train_batch_size=8,
        gradient_accumulation_steps=1 if memory else 8,
        num_generations=8,
        max_completion_length=32,
        gradient_checkpointing=memory,
        use_cpu=not cuda,
        bf16=cuda,
        model_init_kwargs={"dtype": "float32"},
        save_strategy="no",
        report_to="none",
        loss_type="dr_grpo",
        scale_rewards="none",
        beta=0.0,
        learning_rate=1e-6,
    ),
    train_dataset=Dataset.from_list([{"prompt": max(chats, key=lambda chat: len(chat[0]["content"]))}] * 8)
    if memory
    else Dataset.from_list([{"prompt": chat} for chat in chats]),
    callbacks=[Clock()],
)
trainer.train()
figures = {
    "generate": marks["generated"] - marks["start"],
    "learn": marks["end"] - marks["generated"],
    "peak": torch.cuda.max_memory_allocated() if cuda else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
}
out.write_text(json.dumps({"figures": figures, "batch": batch}))
