"""A GRPOTrainer with a tiny model that joins a swarm, and a peer that shares what it is told to."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from tiny import make_model, make_tokenizer

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Completion, Rollout
from shoal.tasks import Tasks
from shoal.transports.memory import MemorySwarm
from shoal_extras.trl import TRLNode

os.environ["TRL_EXPERIMENTAL_SILENCE"] = "1"
LETTERS = "letters:Letters"
"""A task that an untrained model sometimes gets right."""
G = 4
RIGHT, WRONG = "a", "zz"


def make_trainer(node: TRLNode, folder: Path, *, hooks: dict[str, Any] | None = None, **settings: Any) -> Any:
    """A stock GRPOTrainer: 4 groups of 4 in each batch. `settings`: of GRPOConfig, or of GRPOTrainer."""
    from trl import GRPOConfig, GRPOTrainer

    tokenizer = make_tokenizer(chat=True)
    model = settings.pop("model", None) or make_model(vocab_size=len(tokenizer))
    model.config.eos_token_id = model.generation_config.eos_token_id = tokenizer.eos_token_id
    more = {name: settings.pop(name) for name in ("peft_config", "eval_dataset", "tools") if name in settings}
    usual = {
        "output_dir": str(folder),
        "use_cpu": True,
        "bf16": False,
        "report_to": [],
        "disable_tqdm": True,
        "save_strategy": "no",
        "logging_steps": 1,
        "max_steps": 2,
        "num_generations": G,
        "per_device_train_batch_size": 4 * G,
        "max_completion_length": 6,
        "learning_rate": 1e-2,
    }
    args = GRPOConfig(**(usual | settings))
    return GRPOTrainer(model, args=args, processing_class=tokenizer, **(hooks or node.hooks), **more)


class Peer:
    """A node of the same process that shares good and bad answers to its questions."""

    def __init__(self, swarm: MemorySwarm, name: str = "bob") -> None:
        self.tasks = Tasks(TasksConfig(sources=[TaskSpec(name=LETTERS)]))
        self.place = swarm.join(name)
        self.name = name
        self.round = 0

    def share(self, slots: int = 2, texts: tuple[str, ...] = (RIGHT, WRONG, WRONG, RIGHT), **changes: Any) -> None:
        """`slots` rollouts with these `texts`. `changes`: of the rollouts' fields."""
        self.round += 1
        questions = self.tasks.draw(slots, *self.place.seed_key, self.round)
        completions = tuple(map(Completion.of, texts))
        fields = {"node": self.name, "round": self.round} | changes
        self.place.share(
            [
                Rollout(**({"question": q.id, "question_hash": q.hash, "completions": completions, "slot": s} | fields))
                for s, q in enumerate(questions)
            ]
        )
