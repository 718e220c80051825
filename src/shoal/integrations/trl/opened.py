"""All that a node has while its trainer trains: tasks, verifier, rewards, a place in the swarm, a policy. Close it."""

import logging
import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

from shoal.admission.peers import Differing
from shoal.config.own_code import make_part
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity, identity_path
from shoal.identity.lock import only_node
from shoal.integrations.trl.checks import check_stop
from shoal.integrations.trl.policy import TrainerPolicy
from shoal.integrations.trl.rounds import Rounds, TrainerLearner, WholeGroups
from shoal.membership.connection import SwarmConnection
from shoal.membership.settings import public_name
from shoal.node import Node
from shoal.parallel.rank_zero import RankZeroSwarm, RankZeroVerifier
from shoal.parallel.ranks import Ranks
from shoal.policy.control import ControlText
from shoal.protocols import Grader, Selection, Swarm
from shoal.rewards import Combined, ExaminedRewards, RewardVerifier, rewards_of
from shoal.rewards.scorer import FadingScorer, Scorer
from shoal.rollout import Scored
from shoal.runs.diagnosis import FailedScoring
from shoal.runs.metrics import live_in_pool
from shoal.sandbox.verifier import Verifier as SandboxVerifier
from shoal.selection.levels import Levels
from shoal.selection.selection import FairSelection
from shoal.tasks import Tasks
from shoal.wire.rollouts import SamplingSettings

logger = logging.getLogger("shoal")

ALONE_NOTED = 10.0
"""Seconds alone after which the user is told."""


class Opened:
    """A node of a trainer. All processes of the trainer together are one node; rank zero has its place in the swarm."""

    def __init__(self, config: Config, trainer: Any, place: Swarm | None, name: str, round: int) -> None:
        """`config`: the settings of tasks, rewards, selection and network; the trainer has the others. `place`: in a
        swarm of this process, where the node is called `name`; None: the network. `round`: the rounds done before.
        Raises `UserError`."""
        accelerator = trainer.accelerator
        self.ranks = Ranks(accelerator.process_index, accelerator.num_processes, accelerator.local_process_index)
        self.config = _completed(config, trainer)
        self._membership: SwarmConnection | None = None
        self._said = ""
        self._stack = ExitStack()
        try:
            self._open(trainer, place, name)
        except BaseException:
            self.close()
            raise
        self.rounds.node.round = round

    def _open(self, trainer: Any, place: Swarm | None, name: str) -> None:
        config, ranks = self.config, self.ranks
        self.policy = policy = TrainerPolicy(trainer, ranks)
        check_stop(trainer, policy.lm)
        tasks = Tasks(config.tasks)
        tasks.refuse_environments("a trainer of TRL")
        if config.tasks.stages:
            raise UserError("a trainer of TRL asks no questions of stages: leave `stages` out")
        verifier = self._stack.enter_context(SandboxVerifier(config.tasks))
        rewards = rewards_of(config, verifier, policy.placement) if ranks.is_zero else None
        if rewards:
            self._stack.enter_context(rewards)
        self._failing = FailedScoring(verifier, rewards)
        self._verifier: Grader = RewardVerifier(tasks, rewards) if rewards else verifier
        scoring = self._verifier if ranks.size == 1 else RankZeroVerifier(self._verifier, ranks)
        if place is None and ranks.is_zero:
            name, place = self._join(policy, rewards, tasks)
        name = ranks.broadcast(name)
        swarm = RankZeroSwarm(place, ranks) if place is None or ranks.size > 1 else place
        selection = config.selection
        credit = config.tasks.partial_credit
        G = config.policy.num_generations
        node = Node(
            name=name,
            seed=config.seed,
            tasks=tasks,
            scorer=Scorer(tasks, scoring) if isinstance(credit, bool) else FadingScorer(tasks, scoring, name, credit),
            policy=policy,
            learner=TrainerLearner(policy, trainer.args.scale_rewards),
            swarm=swarm,
            selection=make_part(selection.factory, "selection", Selection, config)  # type: ignore[type-abstract]
            if selection.factory
            else FairSelection(selection),
            pool=WholeGroups(G, policy.completion_ids),
            I=config.round.local,
            J=config.round.peers,
            G=G,
            draws=Levels(tasks) if tasks.ladders else None,
        )
        self.rounds = Rounds(node, config.round.peers, lambda: tasks.trouble or self._verifier.trouble)

    def _join(self, policy: TrainerPolicy, rewards: Combined | None, tasks: Tasks) -> tuple[str, Swarm]:
        """The node's name and its place in the network."""
        config, identity = self.config, Identity.load_or_create(identity_path())
        self._stack.enter_context(only_node(identity_path(), config.network.name))
        sampling = policy.sampling
        member = SwarmConnection(
            config,
            identity,
            model=public_name(policy.name),
            sampling=SamplingSettings(sampling.temperature, sampling.top_p, sampling.max_completion_length),
            rewards=ExaminedRewards(rewards) if rewards else None,
            waits=True,
        )
        self._membership = self._stack.enter_context(closing(member))
        member.admission.control = ControlText(policy.control_strings())
        member.admission.differing = Differing(tasks.identities)
        member.start()
        return identity.name, member

    def batch(self, groups: int) -> list[Scored]:
        """The groups of a generation batch. Raises `UserError` if no answer can be scored."""
        batch = self.rounds.batch(groups)
        if self.ranks.any(self._failing.all_failed()):
            raise UserError(
                f"no answer could be scored: {self._verifier.trouble}; correct the scorer, and let it return 0 for an "
                "answer that it cannot read"
            )
        if self._membership:
            self._tell(self._membership)
        return batch

    def _tell(self, member: SwarmConnection) -> None:
        """Tells the swarm how the round went, and the user if there is no swarm."""
        member.tell(self.rounds.row, self.rounds.learned)
        member.need(live_in_pool(self.rounds.node), self.rounds.peers)
        status = member.status()
        alone = status["silo_since"] is not None and time.time() - status["silo_since"] > ALONE_NOTED
        note = status["note"] if alone else ""
        if note and note != self._said:
            logger.warning("shoal: %s", note)
        self._said = note

    def save(self, folder: Path) -> None:
        """Writes the state of the node; the model is the trainer's. Rank zero calls it."""
        self.rounds.node.save(folder)

    def load(self, folder: Path) -> None:
        """Reads what `save` wrote. All ranks call it. Raises `UserError` if it cannot be read."""
        try:
            self.rounds.node.load(folder)
        except Exception as error:  # the parsers of its files raise whatever they do
            raise UserError(
                f"the state of the node in {folder} cannot be read ({type(error).__name__}: {error}): remove that "
                "folder to go on with an empty pool"
            ) from error

    def close(self) -> None:
        """Leaves the swarm."""
        self._stack.close()


def rows(batch: Sequence[Scored], policy: TrainerPolicy) -> list[dict[str, Any]]:
    """What `rollout_func` returns for each completion of `batch`, in order."""
    return [
        {
            "prompt_ids": prompt,
            "completion_ids": policy.completion_ids(completion),
            "shoal_reward": reward,
            "shoal_question": scored.question.shown,
            "shoal_maker": scored.rollout.node,
        }
        for scored, prompt in [(scored, policy.prompt_ids(scored.question)) for scored in batch]
        for completion, reward in zip(scored.rollout.completions, scored.rewards, strict=True)
    ]


def _completed(config: Config, trainer: Any) -> Config:
    """`config` with what the trainer says. Raises `UserError` for more foreign groups than a batch has room for."""
    args = trainer.args
    groups = args.generation_batch_size // args.num_generations
    peers = config.round.peers if "peers" in config.round.model_fields_set else groups // 2
    if peers >= groups:
        raise UserError(
            f"peers={peers} leaves no room for own rollouts: a generation batch has {groups} groups "
            "(generation_batch_size / num_generations of GRPOConfig)"
        )
    if args.max_completion_length is None:
        raise UserError("say how long answers may be: max_completion_length of GRPOConfig is None")
    config = config.model_copy(deep=True)
    config.round.local, config.round.peers = groups - peers, peers
    config.policy.model = [trainer.model.name_or_path]
    config.policy.num_generations = args.num_generations
    config.policy.max_completion_length = args.max_completion_length
    config.policy.temperature, config.policy.top_p = args.temperature, args.top_p
    return config.resolved()
