"""A node's parts without a model: what they do is plain to see, and they keep what they were given."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

from shoal.config.sections import SelectionConfig
from shoal.node import Node
from shoal.protocols import UpdateResult
from shoal.rewards.scorer import Scorer
from shoal.rollout import (
    Completion,
    FinishReason,
    Message,
    Part,
    Question,
    QuestionId,
    Rollout,
    Scored,
    hash_of,
    seed_of,
)
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection
from shoal.transports.memory import MemoryLink, MemorySwarm

RIGHT, WRONG = "right", "wrong"
CONFIG = hash_of({})


def question(index: int, task: str = "say", version: str = "1", seed: int = 0) -> Question:
    identity = QuestionId(task, version, CONFIG, seed, index)
    return Question(identity, (Message("system", "be brief"), Message("user", f"say {seed} {index}")))


def rollout(
    asked: Question | None = None,
    answers: Sequence[str] = (RIGHT, WRONG),
    node: str = "bob",
    round: int = 1,
    slot: int = 0,
) -> Rollout:
    asked = asked or question(1)
    return Rollout(asked.id, asked.hash, tuple(Completion.of(answer) for answer in answers), node, round, slot)


def scored(
    rewards: Sequence[float] = (1.0, 0.0), index: int = 1, node: str = "bob", task: str = "say", slot: int = 0
) -> Scored:
    asked = question(index, task)
    answers = [str(reward) for reward in rewards]
    return Scored(rollout(asked, answers, node, slot=slot), asked, tuple(rewards))


class Sayings:
    """Tasks: one task, "say"; a question with an index that five divides is held out."""

    def draw(self, n: int, *key: str | int) -> list[Question]:
        random = Random(seed_of(*key))
        return [question(random.randrange(10**6) * 5 + 1, seed=seed_of(*key, slot)) for slot in range(n)]

    def is_held_out(self, asked: Question) -> bool:
        return asked.id.index % 5 == 0

    def question(self, id: QuestionId) -> Question:
        if (id.task, id.version, id.config) != ("say", "1", CONFIG):
            raise ValueError(f"not one of these tasks: {id}")
        return question(id.index, seed=id.seed)


class Exact:
    """A verifier for which one text is right; it keeps what it was asked."""

    def __init__(self, right: str = RIGHT) -> None:
        self.right = right
        self.asked: list[tuple[QuestionId, Sequence[str]]] = []
        self.closed = False
        self.trouble = ""
        self.counts = (0, 0)

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        self.asked += items
        return [[float(text == self.right) for text in texts] for _, texts in items]

    def close(self) -> None:
        self.closed = True

    def __enter__(self) -> Exact:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Parrot:
    """A policy that gives the same answers to whatever it is asked."""

    def __init__(self, *answers: str, weights: int = 0, save: Callable[[Path], None] | None = None) -> None:
        self.answers = answers or (RIGHT, WRONG)
        self.seeds: list[int] = []
        self.name = "parrot"
        self.trouble = ""
        weight = SimpleNamespace(numel=lambda: weights, requires_grad=True)
        self.lm: Any = SimpleNamespace(model=SimpleNamespace(parameters=lambda: [weight]))
        self._save = save

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        self.seeds.append(seed)
        group = tuple(self._completion(number) for number in range(num_generations))
        return [group for _ in questions]

    def save(self, folder: Path) -> None:
        (folder / "policy.txt").write_text(",".join(self.answers))
        if self._save:
            self._save(folder)

    def _completion(self, number: int) -> Completion:
        """Every fourth one was cut; there is one token for each letter, and one for the end."""
        text, cut = self.answers[number % len(self.answers)], number % 4 == 3
        reason = FinishReason.length if cut else FinishReason.stop
        return Completion((Part(text),), reason, tuple(range(len(text) + (not cut))))


class Student:
    """A learner that counts what it has learned from, and keeps the lessons."""

    def __init__(self, *_: object) -> None:
        self.lessons: list[list[Scored]] = []
        self.seeds: list[int] = []
        self.learned: Counter[str] = Counter()

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        self.lessons.append(list(batch))
        self.seeds.append(seed)
        self.learned.update(f"{s.rollout.node} {s.rollout.round} {s.question.text}" for s in batch)
        shares = Counter(s.rollout.node for s in batch)
        return UpdateResult({"loss": 0.5}, {node: count / len(batch) for node, count in shares.items()})

    def save(self, folder: Path) -> None:
        (folder / "student.json").write_text(json.dumps(self.learned))

    def load(self, folder: Path) -> None:
        self.learned = Counter(json.loads((folder / "student.json").read_text()))


def make_scorer(right: str = RIGHT) -> Scorer:
    return Scorer(Sayings(), Exact(right))


def join(swarm: MemorySwarm, name: str = "listener") -> MemoryLink:
    """A place in `swarm` for somebody who is no node."""
    return swarm.join(name)


def make_node(name: str = "ada", swarm: MemorySwarm | None = None, right: str = RIGHT, **parts: Any) -> Node:
    """A node of fakes, I = 2, J = 2, G = 4; `parts` replace its own."""
    scorer = make_scorer(right)
    usual: dict[str, Any] = {
        "seed": 7,
        "scorer": scorer,
        "policy": Parrot(),
        "learner": Student(),
        "tasks": scorer.tasks,
        "swarm": (swarm or MemorySwarm(7)).join(name),
        "selection": FairSelection(SelectionConfig(fill=False)),
        "pool": Pool(16, 2),
        "I": 2,
        "J": 2,
        "G": 4,
    }
    return Node(name=name, **usual | parts)
