"""A run with controls and attacks, as `[experiment]` of its settings says.

    nodes = Experiment(config)                  # without such settings the same as `Nodes`
    Run(nodes, folder, watch).go(stop)

Each control changes one thing of a node: whom it hears, what it asks, how it scores, what answers, whether it learns.
"""

import random
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.node import Node
from shoal.protocols import Grader, Policy, Swarm, TaskSource
from shoal.rewards.scorer import Scorer
from shoal.rollout import Rollout, Scored, seed_of
from shoal.runs.build import Nodes
from shoal.sandbox.verifier import Verifier as SandboxVerifier
from shoal_lab.attacks import Adversary
from shoal_lab.config import ExperimentConfig, LabConfig


class Experiment(Nodes):
    """Nodes under the controls of `[experiment]`."""

    def __init__(self, config: LabConfig, checkpoint: Path | None, verifier: SandboxVerifier | None = None) -> None:
        """As `Nodes`."""
        self.experiment = config.experiment
        self.frozen = last_nodes(config, config.experiment.frozen)
        self.adversaries = last_nodes(config, config.experiment.adversaries)
        super().__init__(config, checkpoint=checkpoint, verifier=verifier)

    def make_scorer(self, name: str) -> Scorer:
        if self.experiment.shuffle == "none":
            return super().make_scorer(name)
        spared = name if self.experiment.shuffle == "external" else ""
        return ShufflingScorer(self.tasks, self.scoring, self.config.seed, spared, self._verifier)

    def make_node(self, name: str, policy: Policy) -> Node:
        node = super().make_node(name, policy)
        settings = self.experiment
        attack = settings.attack if name in self.adversaries else ""
        node.swarm = Controlled(node.swarm, settings, self.config.seed, attack)
        if name in self.frozen or name in self.adversaries:
            node.learner = None
        if name in self.adversaries:
            attacks = lambda: node.round > settings.honest_rounds  # noqa: E731
            node.policy = Adversary(settings.attack, self.tasks, policy, settings.payload_share, attacks)
        return node


def last_nodes(config: Config, count: int) -> list[str]:
    """The last `count` nodes. Raises `UserError` if there are not so many."""
    names = list(config.node_models)
    if count > len(names):
        raise UserError(f"{count} nodes are to be frozen or hostile, but the run has only {len(names)}")
    return names[len(names) - count :]


class ShufflingScorer(Scorer):
    """Shuffles the rewards within each rollout, but for those of the node `spared`."""

    def __init__(
        self, tasks: TaskSource, verifier: Grader, seed: int, spared: str, replayer: SandboxVerifier | None = None
    ) -> None:
        super().__init__(tasks, verifier, replayer)
        self.seed = seed
        self.spared = spared

    def score(self, rollouts: Sequence[Rollout | Scored]) -> list[Scored]:
        found = super().score(rollouts)
        return [scored if scored.rollout.node == self.spared else shuffled(scored, self.seed) for scored in found]


def shuffled(scored: Scored, seed: int) -> Scored:
    """The rollout with its rewards in random order."""
    rollout, rewards = scored.rollout, list(scored.rewards)
    random.Random(seed_of(seed, "shuffle", rollout.node, rollout.round, rollout.slot)).shuffle(rewards)
    return msgspec.structs.replace(scored, rewards=tuple(rewards))


class Controlled:
    """A node's place in the swarm, with the controls of an experiment."""

    def __init__(self, swarm: Swarm, settings: ExperimentConfig, seed: int, attack: str = "") -> None:
        """`attack`: of a hostile node. identities: four names, with the node's questions. plagiarist: what it received,
        which strangers' admission refuses."""
        self.swarm = swarm
        self.settings = settings
        self.attack = attack
        self.seed_key = (seed,) if settings.same_questions else swarm.seed_key
        self._tried: list[Rollout] = []
        self._replayed: list[Rollout] = []
        self._copied: list[Rollout] = []

    def share(self, rollouts: Sequence[Rollout]) -> None:
        """Replayed rollouts come back a round later, as if another node had sent them."""
        self._replayed, self._tried = self._tried, [rollout.public() for rollout in rollouts]
        if self.attack == "plagiarist":
            mine = zip(rollouts, self._copied, strict=False)
            rollouts = [
                msgspec.structs.replace(copied, node=own.node, round=own.round, slot=own.slot) for own, copied in mine
            ]
        if self.attack == "identities":
            rollouts = [msgspec.structs.replace(each, node=f"{each.node}-{each.slot % 4}") for each in rollouts]
        self.swarm.share(rollouts)

    def receive(self) -> Sequence[Rollout | Scored]:
        received = self.swarm.receive()
        if self.settings.source == "replay":
            received = self._replayed
        if self.attack == "plagiarist":
            self._copied = [one.rollout if isinstance(one, Scored) else one for one in received]
        makers = [one.rollout.node if isinstance(one, Scored) else one.node for one in received]
        return [one for one, maker in zip(received, makers, strict=True) if maker not in self.settings.blocked]

    @property
    def refused(self) -> int:
        return self.swarm.refused

    def save(self, folder: Path) -> None:
        (folder / "replay.msgpack").write_bytes(msgspec.msgpack.encode(self._tried))
        self.swarm.save(folder)

    def load(self, folder: Path) -> None:
        self._tried = msgspec.msgpack.decode((folder / "replay.msgpack").read_bytes(), type=list[Rollout])
        self.swarm.load(folder)
