"""One node of the swarm: the algorithm of Swarm sAmpling Policy Optimization (arXiv 2509.08721, algorithm 1).

Each round a node answers I questions of its own with G completions each, shares the text of what it tried, takes J of
what others tried, scores all of it with its own verifier, and takes a policy-gradient step on I + J rollouts. It waits
for nobody: with an empty pool it learns from its own.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

import msgspec

from shoal.protocols import Learner, Policy, Sampler, Swarm, UpdateResult
from shoal.rewards.scorer import Scorer
from shoal.rollout import Rollout, Scored, seed_of
from shoal.selection.balance import Balance
from shoal.selection.pool import Pool
from shoal.selection.samplers import live_first
from shoal.selection.sending import Sharing


@dataclass(frozen=True)
class Lesson:
    """What one round gave."""

    own: list[Scored]
    """All own rollouts of the round."""
    learned: list[Scored]
    """Those of them that were learned from."""
    foreign: list[Scored]
    """Others' that were learned from."""
    update: UpdateResult
    """Empty for a node without a learner."""


@dataclass
class Node:
    """A policy, tasks, a learner and a place in the swarm."""

    name: str
    seed: int
    scorer: Scorer
    policy: Policy
    learner: Learner | None
    """Without one the node only contributes: it answers, shares and scores its own."""
    swarm: Swarm
    sampler: Sampler
    pool: Pool
    local: int
    """I: own rollouts in each update."""
    external: int
    """J: other nodes' rollouts in each update, as far as there are live ones."""
    fill: bool = field(default=False, kw_only=True)
    """Whether others' live rollouts take the places of own ones that are dead."""
    num_generations: int
    """G: completions for each question."""
    questions: int | None = None
    """Own questions in each round; none: I."""
    sharing: Sharing = field(default_factory=Sharing)
    balance: Balance | None = None
    """What moves I and J from round to round; none: nothing does."""
    round: int = 0
    tried: list[Rollout] = field(default_factory=list)
    sent: list[Rollout] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    _own: list[Scored] | None = None

    @property
    def asked(self) -> int:
        """How many own questions there are in a round."""
        return self.local if self.questions is None else self.questions

    def act(self) -> None:
        """Answers own questions and shares the answers."""
        self.round += 1
        self.seconds.clear()
        if self.balance:
            self.local, self.external, self.questions = self.balance.shares
        with self._timed("generate"):
            questions = self.scorer.tasks.draw(self.asked, *self.swarm.series, self.round)
            groups = self.policy.generate(questions, self.num_generations, self._seed("generate"))
        self.tried = [
            Rollout(question.id, question.hash, completions, self.name, self.round, slot)
            for slot, (question, completions) in enumerate(zip(questions, groups, strict=True))
            if completions  # an endpoint may fail
        ]
        self._own = None
        self.sent = self.sharing.choose(self.tried, self._scored)
        self.swarm.share(self.sent)

    def learn(self) -> Lesson:
        """Scores own and foreign rollouts alike, and learns from I of the one and J of the other."""
        own = self._scored()
        with self._timed("score"):
            received = self.swarm.receive()
        if self.learner is None:
            return Lesson(own, [], [], UpdateResult())
        self.sampler.observe(own)
        self.pool.add(received, self.round)
        learned = live_first(own, self.local)
        dead = sum(not scored.live for scored in learned) if self.fill and self.external else 0
        foreign = self.sampler.sample(self.pool.candidates(), self.external + dead, self._seed("sample"))
        self.pool.remove(foreign)
        foreign = [msgspec.structs.replace(scored, foreign=True) for scored in foreign]
        learned = live_first(learned, self.local - max(0, len(foreign) - self.external))
        with self._timed("learn"):
            update = self.learner.update(learned + foreign, self._seed("learn"))
        told = update.metrics | {f"gradient/from/{node}": share for node, share in update.gradient_shares.items()}
        told |= {f"gated/from/{node}": share for node, share in update.gated_shares.items()}
        self.sampler.heed(told)
        if self.balance:
            self.balance.observe(told, fmean(scored.mean_reward for scored in own) if own else None)
        return Lesson(own, learned, foreign, update)

    def _scored(self) -> list[Scored]:
        """Own rollouts with their rewards, which are found once: after they were shared, unless that goes by them."""
        if self._own is None:
            with self._timed("score"):
                self._own = self.scorer.score(self.tried)
        return self._own

    def save(self, folder: Path) -> None:
        """Writes all that `load` needs to go on as if nothing had happened. Nothing random is kept: see `_seed`."""
        folder.mkdir()
        self.policy.save(folder)
        if self.learner:
            self.learner.save(folder)
        for part in self._parts():
            part.save(folder)
        (folder / "node.json").write_text(json.dumps({"round": self.round}))

    def load(self, folder: Path) -> None:
        """Takes up what `save` wrote; the policy has been made from the same folder."""
        if self.learner:
            self.learner.load(folder)
        for part in self._parts():
            part.load(folder)
        self.round = json.loads((folder / "node.json").read_text())["round"]

    def _parts(self) -> list[Pool | Swarm | Sampler | Sharing | Balance]:
        """What has a state, beside the policy and the learner."""
        return [self.pool, self.swarm, self.sampler, self.sharing, *([self.balance] if self.balance else [])]

    def _seed(self, purpose: str) -> int:
        """A function of run, node and round, so that a resumed node needs no random state."""
        return seed_of(self.seed, self.name, self.round, purpose)

    @contextmanager
    def _timed(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start
