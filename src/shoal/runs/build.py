"""Builds the nodes of a process from a configuration.

    nodes = Nodes(Config().resolved())
    nodes.each([node.act for node in nodes])
    nodes.close()

`runs.run` runs their rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import msgspec

from shoal.config.own_code import call_offered, is_own, make_part
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError, in_brief
from shoal.evaluation.blind import Shares, constants
from shoal.learn.learner import GRPOLearner
from shoal.learn.losses import make_loss
from shoal.learn.weights import make_weight
from shoal.node import Node
from shoal.parallel.rank_zero import RankZeroVerifier
from shoal.parallel.ranks import ALONE, Ranks
from shoal.parallel.remote import RemoteLearner, RemotePolicy
from shoal.parallel.workers import Workers
from shoal.policy.device import place
from shoal.policy.language import LanguagePolicy
from shoal.protocols import AnswersItself, Grader, Learner, Policy, Selection, Swarm
from shoal.rewards import Combined, RewardVerifier, rewards_of
from shoal.rewards.scorer import Scorer
from shoal.runs.diagnosis import FailedScoring
from shoal.runs.folder import CONFIG
from shoal.runs.machine import checkpoint_bytes, count_workers, place_rank, usable_cores, use_threads
from shoal.runs.models import OF_ONE_PROCESS, endpoint_policy, make_nodes, make_policies
from shoal.sandbox.replay import attach_environments
from shoal.sandbox.verifier import Verifier
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection
from shoal.selection.shorten import Shortener
from shoal.tasks import Tasks
from shoal.tasks.suites import specs_of
from shoal.transports.memory import MemorySwarm

if TYPE_CHECKING:
    from shoal.membership.connection import SwarmConnection
    from shoal.runs.judges import Judges
    from shoal.runs.swarm_status import StatusReporter

T = TypeVar("T")


@dataclass(frozen=True)
class SwarmNode:
    """The one node of this process and its place in a swarm of many machines."""

    name: str
    swarm: Swarm
    place: SwarmConnection | None = None
    """The connection that keeps it; None on all ranks but rank zero."""
    reporter: StatusReporter | None = None
    judges: Judges | None = None


class Nodes:
    """The nodes of a process and what they share: tasks, verifier, rewards, worker processes. Close it."""

    def __init__(
        self,
        config: Config,
        status: Callable[[str], None] = lambda text: None,
        checkpoint: Path | None = None,
        ranks: Ranks = ALONE,
        member: SwarmNode | None = None,
        rewards: Combined | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        """From the models that `config` names, or as they were in `checkpoint`. `status` hears what is being loaded.
        `member`: the one node of this process, if the swarm is elsewhere. `rewards` and `verifier`, of `config`,
        belong to the caller, who closes them. Raises `UserError`."""
        self.config = config = config.resolved()
        self.ranks = ranks
        self.member = member
        self.workers: Workers | None = None
        self._stack = ExitStack()
        self._verifier = verifier or self._stack.enter_context(Verifier(config.tasks))
        self.rewards = rewards
        """What answers are rewarded by; None: by the verifier alone. Only rank zero has them."""
        try:
            self._build(status, checkpoint)
            self.failing = FailedScoring(self._verifier, self.rewards)
        except BaseException:
            self.close()
            raise

    def _build(self, status: Callable[[str], None], checkpoint: Path | None) -> None:
        config, ranks = self.config, self.ranks
        if config.evaluation.judges and (self.member is None or ranks.size > 1):
            raise UserError("evaluation.judges is for `shoal join` in one process: other nodes evaluate themselves")
        if self.member is None and config.round.questions_per_round == 0:
            raise UserError("--questions-per-round 0 is for `shoal join`: no node of this run would answer anything")
        specs_of(config.tasks)  # a mistyped name is reported before anything is loaded
        make_loss(config.learner.loss_type)
        make_weight(config.peers.weight)
        use_threads(config, ranks)
        self.placement = place("cpu", "auto") if config.round.on else place_rank(config, ranks)
        if ranks.is_zero and not self.rewards:  # so is that of a reward function
            self.rewards = rewards_of(config, self._verifier, self.placement)
            if self.rewards:
                self._stack.callback(self.rewards.close)
        names = [self.member.name] if self.member else list(config.node_models)
        policies = self._policies(names, checkpoint, status)  # before tasks: workers start in the background
        self.tasks = Tasks(config.tasks)
        self.verifier: Grader = self._verifier if ranks.size == 1 else RankZeroVerifier(self._verifier, ranks)
        self.scoring = self._scoring()
        self.held_out = self.tasks.held_out(int(config.evaluation.questions), config.seed)
        self.swarm = MemorySwarm(config.seed)
        if self.workers:
            self.workers.wait_ready(status)
        self.checkpoint_bytes = checkpoint_bytes(policies, config)
        self.nodes = [self.make_node(name, policy) for name, policy in zip(names, policies, strict=True)]
        if checkpoint:
            self._restore(checkpoint)

    def make_node(self, name: str, policy: Policy) -> Node:
        """One node that answers with `policy`."""
        config = self.config
        if self.ranks.size > 1 and not isinstance(policy, LanguagePolicy):
            raise UserError(OF_ONE_PROCESS)
        scorer, learner = self.make_scorer(name), self.make_learner(name, policy)
        attach_environments(policy, self._verifier)
        if isinstance(learner, AnswersItself):
            learner.scorer, learner.node = scorer, name
        swarm = self.member.swarm if self.member else self.swarm.join(name, config.policy.num_generations)
        if config.peers.experience:
            swarm = self._with_experience(swarm, policy)
        return Node(
            name=name,
            seed=config.seed,
            tasks=self.tasks,
            scorer=scorer,
            policy=policy,
            learner=learner,
            swarm=swarm,
            selection=make_selection(config),
            pool=Pool(),
            I=config.round.local,
            J=config.round.peers,
            G=config.policy.num_generations,
            questions_per_round=int(config.round.questions_per_round),
            shortener=Shortener() if shortens(config, self.member is not None) else None,
        )

    def _with_experience(self, swarm: Swarm, policy: Policy) -> Swarm:
        """`swarm` with an archive beside it. Raises `UserError`."""
        if self.ranks.size > 1:
            raise UserError("peers.experience is for nodes of one process")
        control = policy.control_strings() if isinstance(policy, LanguagePolicy) else ()
        made: Swarm = call_offered("shoal.experience", "archive", swarm, self.config, self.tasks, control)
        self._stack.callback(made.close)  # type: ignore[attr-defined]
        return made

    def make_learner(self, name: str, policy: Policy) -> Learner | None:
        """The learner that trains `policy`; None for a policy that only answers."""
        if self.config.learner.factory:
            return make_part(self.config.learner.factory, "learner", Learner, policy, self.config)  # type: ignore[type-abstract]
        if isinstance(policy, RemotePolicy):
            return RemoteLearner(policy.workers, name)
        if not isinstance(policy, LanguagePolicy):
            return None
        return GRPOLearner(policy, self.config.learner, self.config.peers, ranks=self.ranks)

    def make_scorer(self, name: str) -> Scorer:
        """The scorer of one node. Several ranks hold no conversations again."""
        return Scorer(self.tasks, self.scoring, self._verifier if self.ranks.size == 1 else None)

    @cached_property
    def blind(self) -> Shares:
        """What answers that ignore the question get of the held-out ones of each task."""
        return constants(self.tasks, self.held_out)

    def check_scoring(self) -> None:
        """Raises `UserError` if every answer since the last call failed to be scored."""
        self.failing.check(self.ranks, self.scoring.trouble or self.verifier.trouble)

    def __iter__(self) -> Iterator[Node]:
        return iter(self.nodes)

    @property
    def round(self) -> int:
        """The number of rounds done."""
        return self.nodes[0].round

    def each(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """The results of all `calls`: made one after the other, or side by side if the models are in workers."""
        return self.workers.lockstep.run(list(calls)) if self.workers else [call() for call in calls]

    def save(self, folder: Path) -> None:
        """Writes a checkpoint."""
        self.each(partial(node.save, folder / node.name) for node in self.nodes)
        save_tasks(folder, self.tasks)
        (folder / CONFIG).write_text(self.config.to_toml())

    def close(self) -> None:
        self._stack.close()

    def _restore(self, checkpoint: Path) -> None:
        try:
            check_tasks(checkpoint, self.tasks)
            self.each(partial(node.load, checkpoint / node.name) for node in self.nodes)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # the parsers of its files raise whatever they do
            raise UserError(
                f"the checkpoint {checkpoint} cannot be read, or another version of shoal wrote it: {in_brief(error)}"
            ) from error

    def _scoring(self) -> Grader:
        """What rollouts are scored by: the verifier, or the rewards in its place."""
        if all(spec.kind == "verifier" for spec in self.config.rewards):
            return self.verifier
        own = RewardVerifier(self.tasks, self.rewards) if self.rewards else self._verifier
        return RankZeroVerifier(own, self.ranks) if self.ranks.size > 1 else own

    def _policies(self, names: Sequence[str], checkpoint: Path | None, status: Callable[[str], None]) -> list[Policy]:
        """The nodes' policies. Those in workers are still being loaded."""
        config = self.config
        given = {name: config.node_models.get(name, config.policy.model[0]) for name in names}
        own: dict[str, Policy] = {
            name: make_part(source, "policy", Policy, config, checkpoint / name if checkpoint else None)  # type: ignore[type-abstract]
            for name, source in given.items()
            if source in config.own_policies
        }
        sources = {name: source for name, source in given.items() if name not in own}
        learning = {name: source for name, source in sources.items() if not is_endpoint(source)}
        count = count_workers(config, learning, self.placement, self.ranks, self.member is not None)
        if not count or config.peers.experience:  # its texts are checked by a model in this process
            loaded = make_policies(config, sources, checkpoint, self.placement, self.ranks, status)
            made = own | dict(zip(sources, loaded, strict=True))
            return [made[name] for name in names]
        if config.round.on:
            from shoal.parallel.cluster import RayWorkers  # Ray, only now

            self.workers = RayWorkers(config, checkpoint, make_nodes, learning)
        else:
            status(f"starting {count} worker processes")
            threads = config.threads or max(1, usable_cores() // count)
            self.workers = Workers(partial(make_nodes, config, checkpoint, threads), learning, count, threads)
        self._stack.callback(self.workers.close)
        return [
            RemotePolicy(self.workers, name) if name in learning else endpoint_policy(config, source)
            for name, source in sources.items()
        ]


def shortens(config: Config, joins: bool) -> bool:
    """Whether a node takes out of peers' right answers what they do not need. `joins`: its peers are elsewhere."""
    auto = (joins or bool(config.peers.experience)) and not config.network.secret_file
    return config.peers.shorten == "on" or (auto and config.peers.shorten == "auto")


def make_selection(config: Config) -> Selection:
    """What a node shares and learns from."""
    if is_own(name := config.selection.rule):
        return make_part(name, "selection", Selection, config)  # type: ignore[type-abstract]
    return FairSelection(config.selection)


FILE: Final = "tasks.json"


def save_tasks(checkpoint: Path, tasks: Tasks) -> None:
    """Writes the identity of each task: its name, its version (the hash of a data set), the hash of its settings."""
    identities = dict(zip(tasks.labels, tasks.identities, strict=True))
    (checkpoint / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(identities)))


def check_tasks(checkpoint: Path, tasks: Tasks) -> None:
    """Raises `UserError` if a task of the checkpoint has other questions now."""
    kept = msgspec.json.decode((checkpoint / FILE).read_bytes(), type=dict[str, tuple[str, str, str]])
    for label, now in zip(tasks.labels, tasks.identities, strict=True):
        before = kept.get(label, now)
        for what, then, today in zip(("name", "data or version", "settings"), before, now, strict=True):
            if then != today:
                raise UserError(
                    f"the task {label!r} is not the one that this run began with: its {what} was {then[:12]} and is "
                    f"{today[:12]} now. Bring back what was there, or begin a new run with this run's model (--model)"
                )
