"""The parts of a node, as interfaces. Write your own in a file of thirty lines (`examples/own_*.py`).

`TaskSource` gives questions, `Environment` answers back, `Grader` rewards answers, `Policy` answers, `Learner` learns,
`Swarm` carries rollouts, `Selection` chooses what to send and what to learn from.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, runtime_checkable

from shoal.rollout import Answer, Completion, Question, QuestionId, Rollout, Scored


class Stateful(Protocol):
    """A part with a state that a checkpoint keeps."""

    def save(self, folder: Path) -> None:
        """Writes into `folder`, which other parts share, what `load` needs."""
        ...

    def load(self, folder: Path) -> None: ...


class TaskSource(Protocol):
    """A source of questions."""

    def draw(self, n: int, *key: str | int) -> list[Question]:
        """`n` training questions; the same `key` gives the same ones, everywhere. One that cannot be made has no
        prompt."""
        ...

    def is_held_out(self, question: Question) -> bool:
        """Whether the question is kept for evaluation."""
        ...

    def question(self, id: QuestionId) -> Question:
        """The question with this id, made again. Raises `ValueError` for an id that these tasks do not have."""
        ...

    def is_drawn(self, id: QuestionId, slot: int, *key: str | int) -> bool:
        """Whether the draw with `key` gives this question in `slot`: a swarm of strangers asks. Raises `ValueError` as
        `question` does."""
        ...


@runtime_checkable
class Environment(Protocol):
    """What answers back. One object holds one conversation. All that it says depends on the `seed` and on the turns so
    far, and on nothing else: every receiver holds the conversation again.

    It may have two more members. `example`: what it says and what the policy says, by turns, shown before each
    conversation; the policy has the last word. `blind()`: the best turns that do not listen, for the blind baseline."""

    name: str
    version: str
    """Another version may answer otherwise."""
    max_turns: int
    """The most turns of the policy, from 2 to `rollout.MAX_TURNS`."""

    def begin(self, seed: int) -> str:
        """The first words, to which the policy answers. `seed`, in [0, 2**63), stands for the question."""
        ...

    def answer(self, turn: str) -> tuple[str, bool]:
        """The observation after a turn of the policy, and whether the conversation has ended. A stranger may have
        written the turn."""
        ...

    def score(self) -> float:
        """The score of the conversation so far, which may have been cut short: 1 or more is right."""
        ...


class Grader(Protocol):
    """Rewards answers. It raises nothing, whatever an answer contains."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        """Rewards, one for each answer to each question: 1 or more is right."""
        ...

    @property
    def trouble(self) -> str:
        """The first failure of a scorer and how many there were, in one line; empty if there was none."""
        ...


class Policy(Protocol):
    """What answers questions."""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        """`num_generations` completions for each question; the same `seed` gives the same ones. A policy that may fail
        (an endpoint) gives fewer, or none."""
        ...

    @property
    def trouble(self) -> str:
        """Why the last call gave fewer completions than it was asked for; empty if it did not."""
        ...

    def save(self, folder: Path) -> None:
        """Writes the model, so that a policy can be built from the folder."""
        ...


OnProgress = Callable[[int], None]
"""Gets the number of questions that are answered so far, several times a second. What it raises ends the answering."""


@runtime_checkable
class ReportsProgress(Protocol):
    """A policy that reports how far `generate` has come. Shoal's own do; one of your own need not."""

    on_progress: OnProgress | None
    """Called with each report. None between calls."""


@contextmanager
def progress_to(policy: Policy, on_progress: OnProgress | None) -> Iterator[None]:
    """Within it `policy` reports to `on_progress` how far it has come, if it reports at all."""
    if not isinstance(policy, ReportsProgress):
        yield
        return
    policy.on_progress = on_progress
    try:
        yield
    finally:
        policy.on_progress = None


@runtime_checkable
class CountsCost(Protocol):
    """A policy that knows what its answers cost. An endpoint does not."""

    def cost(self, questions: Sequence[Question], answers: Sequence[Sequence[Completion]]) -> tuple[int, float]:
        """Of the `answers` to each of `questions`: the tokens that were read, of prompts and of what environments said
        between turns, and floating-point operations."""
        ...


@dataclass(frozen=True)
class UpdateResult:
    """What one update did."""

    metrics: dict[str, float] = field(default_factory=dict)
    """Figures for the log, with TRL's names: loss, grad_norm, entropy, ... Nothing is steered by them."""
    gradient_shares: dict[str, float] = field(default_factory=dict)
    """Each maker's share of the gradient: of the sum of |advantage| x weight over all tokens, in [0, 1]. The shares add
    up to 1; there are none where nothing was learned."""


class Learner(Stateful, Protocol):
    """What changes a policy."""

    def update(self, batch: Sequence[Scored], seed: int = 0) -> UpdateResult:
        """One update on own and peers' rollouts. `seed` decides whatever is random in it."""
        ...


class Scores(Protocol):
    """Validates rollouts, and has a verifier reward those that are valid."""

    def score(self, rollouts: Sequence[Rollout | Scored]) -> list[Scored]: ...


@runtime_checkable
class AnswersItself(Protocol):
    """A learner that answers questions anew while it learns. One of your own need not."""

    scorer: Scores | None
    """The node's scorer, which rewards these answers. Whoever builds the node sets it; None before that."""
    node: str
    """The node's name. Whoever builds the node sets it."""


class Swarm(Stateful, Protocol):
    """What carries rollouts between nodes. Neither call waits for anybody."""

    def share(self, rollouts: Sequence[Rollout]) -> None:
        """Sends own rollouts to whoever listens."""
        ...

    def receive(self) -> Sequence[Rollout | Scored]:
        """Other nodes' rollouts that came since the last call. Those that a background thread of this node has
        validated and scored already come as `Scored`."""
        ...

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        """The key of this node's draws, beside the round. No other node has the same key, so none draws the same."""
        ...

    @property
    def refused(self) -> int:
        """Other nodes' rollouts that were refused before `receive` could return them."""
        ...


class Pool(Stateful, Protocol):
    """Other nodes' scored rollouts that have not been used yet."""

    def __len__(self) -> int: ...

    def add(self, scored: Iterable[Scored], round: int) -> None:
        """Takes in what arrived in `round`."""
        ...

    def candidates(self) -> list[Scored]:
        """What can be chosen, oldest first."""
        ...

    def remove(self, used: Iterable[Scored]) -> None:
        """Takes out what has been learned from."""
        ...


class Selection(Stateful, Protocol):
    """Chooses which rollouts a node sends and which it learns from."""

    def to_send(self, local: Sequence[Scored]) -> list[Rollout]:
        """Those of the node's own rollouts of a round that are shared."""
        ...

    def choose(self, local: Sequence[Scored], pool: Pool, I: int, J: int, seed: int) -> list[Scored]:
        """The batch of an update: about I of `local` and J of `pool`, which are taken out of it and marked `from_peer`.
        Another node's rollout of a single completion gets a `baseline`."""
        ...

    def on_update(self, result: UpdateResult) -> None:
        """Learns from what the update did with the last batch."""
        ...


@runtime_checkable
class Asker(Protocol):
    """A selection that also chooses what its node asks. One of your own need not."""

    drawn: int
    """Questions drawn for each one that is asked. Strangers take no rollouts of a draw beyond its 64th question."""

    def to_ask(self, questions: Sequence[Question], n: int) -> list[Question]:
        """`questions` in order, all but `n` of them with an empty prompt: those are not asked."""
        ...
