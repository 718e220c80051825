"""What the two ranks of `test_ranks.py` do: it starts this file twice, and compares with what it does alone."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from test_learner import rollouts
from tiny import CPU, limit, make_lm, make_question
from transformers.models.gemma3.modeling_gemma3 import Gemma3RMSNorm

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.learner import GRPOLearner
from shoal.parallel.ranks import Ranks, joined, leave
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy

CASES: dict[str, dict[str, Any]] = {
    "steps": {"num_iterations": 4},
    "batch": {"scale_rewards": "batch", "num_iterations": 2},
    "checkpointed": {"checkpoint_tokens": 0, "max_grad_norm": 1e-3},
}
"""Settings of learners."""
KINDS = {"steps": "gemma3", "batch": "llama", "checkpointed": "gpt2"}
"""Architectures; gemma3 and gpt2 have tied embeddings."""
QUESTIONS = ["2 + 2 =", "the quick brown fox", "say nothing at all, or say it well", "yes", "no?"]
"""More on one rank than on the other."""


def _norm(self: Gemma3RMSNorm, x: torch.Tensor) -> torch.Tensor:
    """The norm of transformers in float64. In float32 the order in which ranks add up changes its last digits."""
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps) * (1.0 + self.weight)


def make(case: str, ranks: Ranks) -> tuple[LanguagePolicy, GRPOLearner]:
    """A tiny policy in float64 with its learner."""
    policy = LanguagePolicy(make_lm(KINDS[case], double=True), Sampling(max_completion_length=12), CPU, ranks)
    options = {name: value for name, value in CASES[case].items() if name in ("checkpoint_tokens", "max_grad_norm")}
    chosen = {name: value for name, value in CASES[case].items() if name not in options}
    config = LearnerConfig(**chosen)
    return policy, limit(GRPOLearner(policy, config, PeersConfig(), 1e-2, ranks), budget=24, **options)


def live(case: str, ranks: Ranks, folder: Path) -> dict[str, Any]:
    """Two updates, with a checkpoint and another learner in between, and answers after them."""
    policy, learner = make(case, ranks)
    metrics = [learner.update(rollouts(), seed=1).metrics]
    folder = folder / case
    if ranks.is_zero:
        folder.mkdir()
    ranks.each(None)
    policy.save(folder)
    learner.save(folder)
    ranks.each(None)
    learner.skipped_steps = 7
    learner.load(folder)
    metrics.append(learner.update(rollouts(), seed=2).metrics)
    answers = policy.generate([make_question(text) for text in QUESTIONS], 3, seed=5)
    return {
        "metrics": metrics,
        "weights": {n: w.detach().clone() for n, w in learner.model.named_parameters()},
        "tokens": [[completion.token_ids for completion in group] for group in answers],
        "saved": torch.load(folder / "learner.pt"),
    }


@patch.object(Gemma3RMSNorm, "forward", _norm)
def all_cases(ranks: Ranks, folder: Path) -> dict[str, Any]:
    return {case: live(case, ranks, folder) for case in CASES}


def learn(ranks: Ranks, folder: Path) -> None:
    assert ranks.gather([f"{n}" for n in ranks.mine(range(5))]) == ["0", "1", "2", "3", "4"]
    assert ranks.broadcast(os.getpid()) == ranks.each(os.getpid())[0]
    assert ranks.any(ranks.rank == 1)
    assert not ranks.any(False)
    torch.save(all_cases(ranks, folder), folder / f"rank-{ranks.rank}.pt")


if __name__ == "__main__":
    torch.set_num_threads(1)
    with joined("cpu") as ranks:
        learn(ranks, Path(sys.argv[1]))
    leave(0)
