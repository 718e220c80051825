"""One node of the swarm: the algorithm of Swarm sAmpling Policy Optimization (arXiv 2509.08721, algorithm 1).

In each round a node answers questions of its own with G completions each and shares the text of what it tried. It
takes what other nodes shared, scores all of it with its own verifier, and takes a policy-gradient step on I of its own
rollouts and J of its peers'. It waits for nobody: with an empty pool it learns from its own.
"""

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from shoal.protocols import Asker, Learner, Policy, Pool, Selection, Stateful, Swarm, TaskSource, UpdateResult
from shoal.rewards.scorer import Scorer
from shoal.rollout import Completion, Question, Rollout, Scored, seed_of
from shoal.selection.shorten import Shortener

CHOICES = 3
"""How often peers' rollouts are chosen for a round, at most: those of makers who do not teach are replaced."""


@dataclass(frozen=True)
class RoundResult:
    """What one round of a node gave."""

    local: list[Scored]
    """All own rollouts of the round."""
    batch: list[Scored]
    """The rollouts that were learned from, own and of peers; empty for a node without a learner."""
    update: UpdateResult

    @property
    def from_peers(self) -> list[Scored]:
        """The peers' rollouts of the batch."""
        return [scored for scored in self.batch if scored.from_peer]


@dataclass
class Node:
    """A policy, tasks, a learner and a place in the swarm.

        node = Node("ada", seed, tasks, scorer, policy, learner, swarm, selection, pool, I=4, J=4, G=8)
        node.act()
        result = node.learn()

    `examples/swarm_loop.py` builds nodes and runs them.
    """

    name: str
    seed: int
    tasks: TaskSource
    scorer: Scorer
    policy: Policy
    learner: Learner | None
    """None: the node only contributes. It answers, shares and scores its own answers."""
    swarm: Swarm
    selection: Selection
    pool: Pool
    I: int
    """Own rollouts in each update."""
    J: int
    """Peers' rollouts in each update, as far as the pool has live ones."""
    G: int
    """Completions for each question."""
    questions_per_round: int | None = None
    """Own questions in each round; None: I."""
    shortener: Shortener | None = None
    """Takes out of peers' right answers what they do not need; None: they teach as they come."""
    round: int = 0
    local: list[Scored] = field(default_factory=list)
    """Own rollouts of the current round."""
    sent: list[Rollout] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """Wall-clock seconds of each part of the current round."""

    @property
    def asked(self) -> int:
        """The number of own questions in a round."""
        return self.I if self.questions_per_round is None else self.questions_per_round

    def act(self) -> None:
        """The first half of a round: answers own questions, scores the answers and shares them."""
        self.round += 1
        self.seconds.clear()
        with self._timed("generate"):
            chooser = self.selection if isinstance(self.selection, Asker) else None
            drawn = self.asked * (chooser.drawn if chooser else 1)
            questions = self.tasks.draw(drawn, *self.swarm.seed_key, self.round)
            questions = chooser.to_ask(questions, self.asked) if chooser else questions
            completions = self._answers(questions)
        with self._timed("score"):
            self.local = self.scorer.score(self.rollouts(questions, completions))
        self.sent = self.selection.to_send(self.local)
        self.swarm.share(self.sent)

    def learn(self) -> RoundResult:
        """The second half: takes peers' rollouts, scores them alike, and learns from I + J."""
        with self._timed("score"):
            peers = self.scorer.score(self.swarm.receive())
        if self.learner is None:
            return RoundResult(self.local, [], UpdateResult())
        self.pool.add(peers, self.round)
        if self.shortener:
            self.shortener.hear(self.local, peers)
        batch = self._taught(self.selection.choose(self.local, self.pool, self.I, self.J, self._seed("sample")))
        with self._timed("learn"):
            result = self.learner.update(batch, self._seed("learn"))
        self.selection.on_update(result)
        return RoundResult(self.local, batch, result)

    def rollouts(self, questions: Sequence[Question], completions: Sequence[tuple[Completion, ...]]) -> list[Rollout]:
        """The completions under this node's name. A question without any is left out: endpoints and tasks may fail."""
        return [
            Rollout(question.id, question.hash, group, self.name, self.round, slot)
            for slot, (question, group) in enumerate(zip(questions, completions, strict=True))
            if group
        ]

    def _taught(self, batch: list[Scored]) -> list[Scored]:
        """The batch as it teaches, with others from the pool in place of peers' rollouts that do not."""
        if not self.shortener:
            return batch
        taught: list[Scored] = []
        wanted = len(batch)
        for again in range(CHOICES):
            with self._timed("score"):
                taught += self.shortener.teaching(self.shortener.shorten(batch, self.scorer), self.round)
            limited = [s for s in self.pool.candidates() if self.shortener.limited(s.rollout.node, self.round)]
            self.pool.remove(limited)
            if len(taught) == wanted or again == CHOICES - 1:
                break
            batch = self.selection.choose([], self.pool, 0, wanted - len(taught), self._seed(f"sample {again}"))
        return taught

    def _answers(self, questions: Sequence[Question]) -> list[tuple[Completion, ...]]:
        """G completions for each question; none where a task failed to make one."""
        made = [question for question in questions if question.prompt]
        answers = iter(self.policy.generate(made, self.G, self._seed("generate")))
        return [next(answers) if question.prompt else () for question in questions]

    def save(self, folder: Path) -> None:
        """Writes all that `load` needs to go on exactly. No random state is among it: see `_seed`."""
        folder.mkdir()
        self.policy.save(folder)
        for part in self._stateful:
            part.save(folder)
        (folder / "node.json").write_text(json.dumps({"round": self.round, "refused": self.scorer.refused}))

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote. The policy has been built from the same folder already."""
        for part in self._stateful:
            part.load(folder)
        state = json.loads((folder / "node.json").read_text())
        self.round, self.scorer.refused = state["round"], state["refused"]

    @property
    def _stateful(self) -> list[Stateful]:
        """The parts with a state, but for the policy."""
        parts = (self.learner, self.pool, self.swarm, self.selection, self.shortener)
        return [part for part in parts if part is not None]

    def _seed(self, purpose: str) -> int:
        """A function of run, node, round and purpose, so that a resumed node needs no random state."""
        return seed_of(self.seed, self.name, self.round, purpose)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
