"""Supervised learning of an archive's right answers: the obvious alternative to learning from it by reinforcement.

    python studies/imitate_archive.py archives/alike archives/imitated [MODEL [STEPS]]

Guppy, or a folder like it, learns each right answer (reward 1 by this machine's own verifier) from its question, in the
form in which a node asks. It prints how many answers there are and the FLOPs that it takes.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

from shoal.config.tasks import TasksConfig
from shoal.policy.flops import Flops
from shoal.policy.loading import load
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_extras.archive.reader import read_groups
from shoal_lab.bases import RATE, prompt
from shoal_lab.supervised import save, train

BATCH = 32


def imitate(archive: Path, out: Path, model: str, steps: int) -> None:
    config = TasksConfig()
    tasks = Tasks(config)
    rollouts = [group.statement.rollout for group in read_groups(archive, tasks.identities)]
    with Verifier(config) as verifier:
        rewards = verifier.score([(one.question, [c.answer for c in one.completions]) for one in rollouts])
    examples = [
        (prompt(tasks.question(rollout.question)), completion.text)
        for rollout, each in zip(rollouts, rewards, strict=True)
        for completion, reward in zip(rollout.completions, each, strict=True)
        if reward >= 1
    ]
    lm: Any = load(model, torch.device("cpu"))
    read = sum(len(lm.tokenizer(a + b).input_ids) for a, b in examples) / len(examples) * BATCH * steps
    print(
        f"{len(examples)} right answers of {len(rollouts)} groups, {Flops.of(lm.model).learning(read, read):.3g} FLOPs"
    )
    train(lm.model, lm.tokenizer, examples, steps, BATCH, RATE, 0, print)
    save(out, lm.model, lm.tokenizer)


if __name__ == "__main__":
    given = [*sys.argv[1:], *("guppy", "300")[len(sys.argv) - 3 :]]
    imitate(Path(given[0]), Path(given[1]), given[2], int(given[3]))
