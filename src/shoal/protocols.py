"""The seams: what a node needs of its parts. Bring your own in a file of thirty lines.

`Tasks` gives questions, `Verifier` scores answers, `Policy` answers, `Learner` learns, `Swarm` carries rollouts,
`Sampler` chooses which of other nodes' to learn from.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from shoal.rollout import Completion, Question, QuestionId, Rollout, Scored


class Tasks(Protocol):
    """A source of questions."""

    def draw(self, n: int, *key: str | int) -> list[Question]:
        """`n` training questions; the same `key` gives the same ones, everywhere."""
        ...

    def is_held_out(self, question: Question) -> bool:
        """Whether the question is kept for evaluation."""
        ...

    def question(self, id: QuestionId) -> Question:
        """The question of this id, made again. Raises `ValueError` for an id that is not one of these tasks'."""
        ...


class DrawnTasks(Tasks, Protocol):
    """Tasks that know their own draws, for swarms of strangers."""

    def is_drawn(self, identity: QuestionId, slot: int, *key: str | int) -> bool:
        """Whether the draw with `key` gives this question in `slot`. Raises `ValueError` as `question` does."""
        ...


class Verifier(Protocol):
    """Scores answers, guarded: whatever stands in them, it returns."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        """Rewards in [0, 1], one for each answer to each question."""
        ...

    @property
    def trouble(self) -> str:
        """The first failure of a scorer and how many there were, in one line; empty if there was none."""
        ...


class Policy(Protocol):
    """What answers."""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question; the same `seed` gives the same ones. A policy that may fail
        (an endpoint) gives fewer, or none."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last call gave fewer than it was asked for, or nothing."""
        ...

    def save(self, folder: Path) -> None:
        """Writes what it takes to go on."""
        ...


class TrainablePolicy(Policy, Protocol):
    """A language model that a learner can train: its weights, and anybody's text as its own tokens."""

    lm: Any
    sampling: Any
    placement: Any

    @property
    def name(self) -> str: ...

    def prompt_ids(self, question: Question) -> list[int]: ...

    def completion_ids(self, completion: Completion) -> list[int]: ...


class Learner(Protocol):
    """What changes a policy."""

    def update(self, scored: Sequence[Scored], seed: int = 0) -> dict[str, float]:
        """Learns from own and foreign rollouts alike; returns metrics."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Swarm(Protocol):
    """What carries rollouts between nodes. Neither call waits for anybody."""

    def share(self, rollouts: Sequence[Rollout]) -> None:
        """Sends own rollouts to whoever listens."""
        ...

    def receive(self) -> list[Scored]:
        """Other nodes' rollouts that came since the last call, admitted and scored by this node."""
        ...

    @property
    def series(self) -> tuple[str | int, ...]:
        """What this node's questions are drawn with, beside the round: no other node's are the same."""
        ...

    @property
    def refused(self) -> int:
        """Other nodes' rollouts that were not admitted."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...


class Sampler(Protocol):
    """Chooses which foreign rollouts to learn from."""

    def sample(self, candidates: Sequence[Scored], n: int, seed: int) -> list[Scored]:
        """At most `n` of `candidates`, as they are or with a `baseline`."""
        ...

    def observe(self, own: Sequence[Scored]) -> None:
        """Is told the node's own rollouts of each round, all of them, before it chooses."""
        ...

    def heed(self, update: Mapping[str, float]) -> None:
        """Is told the metrics of the update that was made with what it chose."""
        ...

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...
