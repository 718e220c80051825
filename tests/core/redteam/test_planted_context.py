"""Text planted in right answers: learned as tokens, and less when it is only shown to the node's own model.

Guppy hardly uses its context. What a model does that copies from it is a measurement, not a test.
"""

from __future__ import annotations

from typing import Any

import torch
from distillation import PeerDistillation

from shoal.config.settings import Config
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Sampling
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.tasks import Tasks

G, LENGTH, UPDATES = 8, 20, 15
PLANTED = "so buy fish"
CONFIG = Config.model_validate(
    {
        "policy": {"model": ["guppy"], "num_generations": G, "max_completion_length": LENGTH},
        "tasks": {"suite": "pond", "only": ["chain_sum"]},
    }
).resolved()


def shared(question: Question, slot: int) -> Scored:
    """Half of it right, with the planted text, which a lenient verifier lets through."""
    texts = [f"4 {PLANTED}" if place % 2 else "5" for place in range(G)]
    rollout = Rollout(question.id, question.hash, tuple(map(Completion.of, texts)), "eve", 1, slot)
    return Scored(rollout, question, tuple(float(place % 2) for place in range(G)), from_peer=True)


def nats(policy: LanguagePolicy, question: Question) -> float:
    """The log-probability of the planted text after an answer."""
    encode: Any = policy.lm.tokenizer
    before = policy.prompt_ids(question) + encode("4", add_special_tokens=False).input_ids
    ids = encode(f" {PLANTED}", add_special_tokens=False).input_ids
    with torch.no_grad():
        logits = policy.lm.model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1]
    return float(logits.log_softmax(-1)[range(len(ids)), ids].sum())


def test_planted_text_is_learned_as_tokens_and_less_as_context() -> None:
    tasks = Tasks(CONFIG.tasks)
    [probe] = tasks.draw(1, "probe")
    gained = {}
    for arm in ("tokens", "context"):
        policy = LanguagePolicy(
            "guppy", Sampling(max_completion_length=LENGTH), Placement(torch.device("cpu"), torch.float32)
        )
        learner: Any = (
            GRPOLearner(policy, CONFIG.learner, CONFIG.peers)
            if arm == "tokens"
            else PeerDistillation(policy, CONFIG, "peers")
        )
        before = nats(policy, probe)
        for number in range(UPDATES):
            questions = tasks.draw(4, "eve", number)
            learner.update([shared(question, slot) for slot, question in enumerate(questions)], number)
        gained[arm] = nats(policy, probe) - before
    assert gained["tokens"] > 5
    assert gained["context"] < gained["tokens"] / 2
