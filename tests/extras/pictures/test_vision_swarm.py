"""Two vision-language models of different families learn from each other; text alone travels between them."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from support.tiny import CPU
from support.tiny_vision import make_vision_lm

from shoal.config.sections import SelectionConfig
from shoal.config.tasks import TasksConfig
from shoal.learn.learner import GRPOLearner
from shoal.node import Node
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.rewards.scorer import Scorer
from shoal.rollout import QuestionId, Rollout
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection
from shoal.tasks import Tasks
from shoal.transports.memory import MemorySwarm


class EvenLengths:
    """Rewards answers of even length, so that random models have something to learn."""

    trouble = ""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[float(len(text) % 2 == 0) for text in texts] for _, texts in items]


def test_two_families_learn_from_each_others_text() -> None:
    tasks, swarm = Tasks(TasksConfig(suite="pictures")), MemorySwarm()
    sent: list[Rollout] = []
    nodes = []
    for name, family in (("ada", "llava"), ("bob", "gemma3")):
        policy = LanguagePolicy(make_vision_lm(family), Sampling(max_completion_length=6), CPU)
        learner = GRPOLearner(policy, learning_rate=1e-3)
        scorer = Scorer(tasks, EvenLengths())
        selection = FairSelection(SelectionConfig())
        node = Node(name, 0, tasks, scorer, policy, learner, swarm.join(name), selection, Pool(), I=2, J=2, G=4)
        nodes.append(node)
    before = [[w.clone() for w in node.policy.lm.model.parameters()] for node in nodes]  # type: ignore[attr-defined]
    foreign = 0
    for _ in range(2):
        for node in nodes:
            node.act()
            sent += node.sent
        foreign += sum(len(node.learn().from_peers) for node in nodes)
    assert foreign >= 4
    assert all(b"picture" not in rollout.encode() and len(rollout.encode()) < 1000 for rollout in sent)
    for node, weights in zip(nodes, before, strict=True):
        model = node.policy.lm.model  # type: ignore[attr-defined]
        assert all(torch.isfinite(w).all() for w in model.parameters())
        assert any((w != old).any() for w, old in zip(model.parameters(), weights, strict=True))
