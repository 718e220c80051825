"""A swarm in one process: builds its nodes, runs them round by round, and keeps the run's folder.

The nodes of one process act in step, as in the paper's controlled experiment: all answer and share, then all learn.
This makes a run repeatable; a `Node` itself waits for nobody.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.evaluation.judges import BY_SELF, Panel
from shoal.evaluation.pass_at_k import evaluate
from shoal.learn.optim import STATE_BYTES
from shoal.node import Lesson, Node
from shoal.parallel.lockstep import Company
from shoal.parallel.rank_zero import LedPolicy, LedVerifier
from shoal.parallel.ranks import ALONE, Ranks
from shoal.parallel.workers import RemoteLearner, RemotePolicy, Workers
from shoal.policy.endpoint import EndpointPolicy
from shoal.policy.language import LanguagePolicy
from shoal.policy.stacked import stack
from shoal.protocols import Learner, Policy, Swarm
from shoal.protocols import Verifier as AnyVerifier
from shoal.rewards import Combined, RankedSwarm, Rankings, RewardVerifier, rewards_of
from shoal.rewards.scorer import Scorer
from shoal.rollout import hash_of, seed_of
from shoal.runs.folder import LEARNED, ROLLOUTS, RunFolder, ensure_space
from shoal.runs.metrics import learned_rows, rollout_rows, round_metrics
from shoal.runs.models import (
    count_workers,
    endpoint_policy,
    make_learner,
    make_policies,
    number,
    place_rank,
    shards,
    use_threads,
)
from shoal.sandbox.verifier import Verifier
from shoal.selection.balance import make_balance
from shoal.selection.pool import Pool
from shoal.selection.samplers import make_sampler
from shoal.selection.sending import make_sharing
from shoal.swarm.memory import MemorySwarm
from shoal.tasks import Tasks

T = TypeVar("T")
AnyPolicy = LanguagePolicy | EndpointPolicy | RemotePolicy


class Run:
    """The nodes of a run and what they write down."""

    def __init__(
        self,
        config: Config,
        folder: RunFolder | None,
        watch: Watcher,
        checkpoint: Path | None = None,
        ranks: Ranks = ALONE,
        member: Member | None = None,
        crew: Crew | None = None,
        rewards: Combined | None = None,
        verifier: Verifier | None = None,
    ) -> None:
        """Builds the nodes: from their models, or as they were in `checkpoint`. `folder`: None where `ranks` has
        another leader, who writes. `member`: the one node of this process, where the swarm is elsewhere. `crew`: what
        the nodes answer with, where it has been made already. `rewards`, `verifier` (for the tasks of `config`): of
        somebody else's, who closes them."""
        self.config = config.resolved()
        self.folder = folder
        self.watch = watch
        self.ranks = ranks
        self._kept = -1
        """The round that has a checkpoint."""
        self.member = member
        self.workers: Workers | None = None
        self._lent = verifier is not None
        self._own_verifier = verifier or Verifier(config.tasks)
        self._own_rewards: Combined | None = None
        self.rewards = rewards.by(self._own_verifier) if rewards else None
        """What answers are rewarded by; none: by the verifier. Only the leader of several ranks has them."""
        try:
            self._build(config, ranks, checkpoint, crew)
        except BaseException:
            self.close()
            raise

    def _build(self, config: Config, ranks: Ranks, checkpoint: Path | None, crew: Crew | None) -> None:
        if config.evaluation.judges and (self.member is None or ranks.size > 1):
            raise UserError("evaluation.judges is for `shoal join` of one process: elsewhere nodes evaluate themselves")
        use_threads(config, ranks)
        self.placement = place_rank(config, ranks)
        names = [self.member.name] if self.member else node_names(config)
        # first, since workers start meanwhile
        policies = self._policies(names, checkpoint) if crew is None else list(crew.policies)
        self.tasks = Tasks(config.tasks)
        self.verifier = self._own_verifier if ranks.size == 1 else LedVerifier(self._own_verifier, ranks)
        self.scoring = self._scoring(config, ranks)
        self.held_out = self.tasks.held_out(number(self.config.evaluation.questions), config.seed)
        self.swarm = MemorySwarm(config.seed, config.network.share_logprobs)
        if self.workers:
            self.workers.wait_ready(self.watch.status)
        if self.folder is not None:  # for the old and the new
            ensure_space(self.folder.path, checkpoint_bytes(policies, config) * (1 if checkpoint else 2))
        self.company, policies = self._together(policies) if crew is None else (crew.company, policies)
        self.nodes = [self.make_node(name, policy) for name, policy in zip(names, policies, strict=True)]
        if checkpoint:
            self._restore(checkpoint)
            self._kept = self.round

    def _restore(self, checkpoint: Path) -> None:
        try:
            self.each(partial(node.load, checkpoint / node.name) for node in self.nodes)
        except (UserError, MemoryError):
            raise
        except Exception as error:  # its files have parsers of their own, which raise whatever they do
            raise UserError(f"the checkpoint {checkpoint} cannot be read: {type(error).__name__}: {error}") from error

    @property
    def round(self) -> int:
        """Rounds done."""
        return self.nodes[0].round

    def control_strings(self) -> frozenset[str]:
        """What stands between turns for the model of the first node; nothing where a server answers."""
        policy = self.nodes[0].policy
        return policy.control_strings() if isinstance(policy, LanguagePolicy | RemotePolicy) else frozenset()

    def go(self, stop: threading.Event) -> None:
        """Runs the rounds that are left. Once `stop` is set it ends after the round in hand, with a checkpoint."""
        steps = self.steps(stop)
        results: list[Any] | None = None
        while True:
            try:
                calls = steps.send(results)  # type: ignore[arg-type]
            except StopIteration:
                return
            results = self.each(calls)

    def steps(self, stop: threading.Event) -> Generator[Sequence[Callable[[], Any]], list[Any], None]:
        """The same in steps: what all nodes are to do next, for which what came of it is to be sent back. So several
        runs can go in step, as one batched program."""
        config = self.config
        if self.round == 0 and self._kept < 0:  # a checkpoint of round 0 has its figures in the folder
            self.watch.status("asking held-out questions")
            figures = yield self._evaluations()
            now = time.time()
            rows = [{"round": 0, "node": n.name, "time": now, **f} for n, f in zip(self.nodes, figures, strict=True)]
            self._write_down(rows, [])
            if config.checkpoint_every:
                self._checkpoint()
        while self.round < config.rounds and not self.ranks.any(stop.is_set()):
            yield [node.act for node in self.nodes]
            lessons = yield [node.learn for node in self.nodes]
            rows = [
                round_metrics(node, lesson) | self._parts(lesson)
                for node, lesson in zip(self.nodes, lessons, strict=True)
            ]
            every = config.evaluation.every
            if self.round == config.rounds or (every and self.round % every == 0):
                figures = yield self._evaluations()
                rows = [row | found for row, found in zip(rows, figures, strict=True)]
            if self.member and self.member.panel:
                node = self.nodes[0]
                seed = seed_of(config.seed, node.name, node.round, "judge")
                [judged] = yield [partial(self.member.panel.examine, node.policy, node.round, seed)]
                rows = [rows[0] | judged]
            self._tell(lessons)
            self._write_down(rows, lessons)
            if config.checkpoint_every and self.round % config.checkpoint_every == 0:
                self._checkpoint()
        if not config.checkpoint_every and self.folder is not None:
            self.folder.flush()
        elif config.checkpoint_every:
            self._checkpoint()  # unless the round has one

    def _evaluations(self) -> list[Callable[[], dict[str, Any]]]:
        return [partial(self.evaluate_node, node) for node in self.nodes]

    def close(self) -> None:
        if not self._lent:
            self._own_verifier.close()
        if self._own_rewards:
            self._own_rewards.close()
        if self.workers:
            self.workers.close()

    def _scoring(self, config: Config, ranks: Ranks) -> AnyVerifier:
        """What rollouts are scored by: the verifier, or the rewards in its place."""
        if ranks.leader and not self.rewards:
            key = hash_of(("judge", config.seed)).encode()  # the nodes of one process have no strangers
            self.rewards = self._own_rewards = rewards_of(config, self._own_verifier, self.placement, key)
        if not config.rewards or all(spec.kind == "verifier" for spec in config.rewards):
            return self.verifier
        own = RewardVerifier(self.tasks, self.rewards) if self.rewards else self._own_verifier
        return LedVerifier(own, ranks) if ranks.size > 1 else own

    def _policies(self, names: Sequence[str], checkpoint: Path | None) -> list[AnyPolicy]:
        """The nodes' policies. Those in workers are on their way: nothing was waited for."""
        config = self.config
        sources = {name: config.policy.model[place % len(config.policy.model)] for place, name in enumerate(names)}
        learning = {name: source for name, source in sources.items() if not is_endpoint(source)}
        count = count_workers(config, learning, self.placement, self.ranks, self.member is not None)
        if not count:
            return list(make_policies(config, sources, checkpoint, self.placement, self.ranks, self.watch.status))
        self.watch.status(f"starting {count} worker processes")
        threads = config.threads or max(1, (os.cpu_count() or 1) // count)
        self.workers = Workers(learning, count, config, checkpoint, threads)
        return [
            RemotePolicy(self.workers, name) if name in learning else endpoint_policy(config, source)
            for name, source in sources.items()
        ]

    def _together(self, policies: list[AnyPolicy]) -> tuple[Company | None, list[Any]]:
        """The nodes' policies as one batched program, where that is wanted and can be, or in workers that meet."""
        if self.workers:
            return self.workers.company, list(policies)
        config, wanted = self.config, self.config.swarm.stacked
        possible = (
            len(policies) > 1
            and self.ranks.size == 1
            and config.policy.engine == "transformers"
            and not config.policy.lora_r
            and config.learner.advantage != "gae"
            and config.learner.gradient_checkpointing is not True
            and len(set(config.policy.model)) == 1
            and not is_endpoint(config.policy.model[0])
        )
        if wanted is True and not possible:
            raise UserError(
                "swarm.stacked = true needs several nodes of one model in one process, without LoRA, gae, gradient "
                "checkpointing, endpoints, vLLM or several ranks"
            )
        if possible and (wanted is True or (wanted == "auto" and self.placement.device.type == "cuda")):
            company = Company()
            try:
                return company, list(stack([p for p in policies if isinstance(p, LanguagePolicy)], company))
            except UserError:  # an architecture that it does not know
                if wanted is True:
                    raise
        return None, list(policies)

    def each(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """What all of `calls` give: one after the other, or meeting in joint batches."""
        return self.company.together(list(calls)) if self.company else [call() for call in calls]

    def make_scorer(self, name: str) -> Scorer:
        """What scores the rollouts that a node tries and receives."""
        return Scorer(self.tasks, self.scoring)

    def make_node(self, name: str, policy: AnyPolicy) -> Node:
        """The node `name`, which answers with `policy`."""
        config = self.config
        scorer = self.make_scorer(name)
        answers: Policy = policy
        learner: Learner | None = None
        if isinstance(policy, RemotePolicy):
            learner = RemoteLearner(policy.workers, name)
        elif not isinstance(policy, EndpointPolicy):
            learner = make_learner(config, policy, self.ranks)
        elif self.ranks.size > 1:
            answers = LedPolicy(policy, self.ranks)
        return Node(
            name=name,
            seed=config.seed,
            scorer=scorer,
            policy=answers,
            learner=learner,
            swarm=self._place(name, scorer),
            sampler=make_sampler(config.sampling, config.learner.external_gate),
            pool=Pool(config.swarm.pool_size, config.swarm.max_age),
            local=config.swarm.local,
            external=config.swarm.external,
            fill=config.sampling.fill,
            num_generations=config.policy.num_generations,
            questions=number(config.swarm.asked),
            sharing=make_sharing(config),
            balance=make_balance(config),
        )

    def _place(self, name: str, scorer: Scorer) -> Swarm:
        """Where a node hears others, and what people ranked, if it is rewarded by that."""
        here = self.config.policy.num_generations
        swarm = self.member.swarm if self.member else self.swarm.join(name, scorer, here)
        if all(spec.kind != "rankings" for spec in self.config.rewards):
            return swarm
        rewards = [entry.reward for entry in self.rewards.entries] if self.rewards else []
        return RankedSwarm(swarm, [one for one in rewards if isinstance(one, Rankings)], scorer, self.ranks)

    def evaluate_node(self, node: Node) -> dict[str, Any]:
        """Held-out pass@1 of a node, as columns of its metrics."""
        result = evaluate(
            node.policy,
            self.verifier,
            self.held_out,
            number(self.config.evaluation.samples),
            seed_of(self.config.seed, node.name, node.round, "evaluate"),
        )
        return {
            "eval/by": BY_SELF,
            "eval/pass@1": result.pass_at(1).value,
            **{f"eval/pass@1/{task}": result.pass_at(1, task).value for task in result.correct},
        }

    def _parts(self, lesson: Lesson) -> dict[str, Any]:
        """What each of several rewards gives a node's own rollouts, on average."""
        items = [(scored.question, [c.text for c in scored.rollout.completions]) for scored in lesson.own]
        parts = self.rewards.means(items) if self.rewards else {}
        return {f"reward/local/{name}": value for name, value in parts.items()}

    def _write_down(self, rows: Sequence[Mapping[str, Any]], lessons: Sequence[Lesson]) -> None:
        if self.folder is not None:
            self.folder.log(rows)
            self.folder.save(ROLLOUTS, self.round, [row for lesson in lessons for row in rollout_rows(lesson)])
            pairs = zip(self.nodes, lessons, strict=False)  # none of either before the first round
            learned = [row for pair in pairs for row in learned_rows(*pair)]
            self.folder.save(LEARNED, self.round, learned)
            if self.member and self.member.tell:
                self.member.tell(rows[0], learned)
        self.watch.update(rows, self.round)

    def _tell(self, lessons: Sequence[Lesson]) -> None:
        pairs = list(zip(self.nodes, lessons, strict=True))
        short = [node.external for node, lesson in pairs if node.learner and len(lesson.foreign) < node.external]
        notes = [self.member.panel.trouble] if self.member and self.member.panel and self.member.panel.trouble else []
        notes += [
            f"{node.name} gives fewer rollouts: {trouble}" for node in self.nodes if (trouble := node.policy.trouble)
        ]
        if short and (len(self.nodes) > 1 or self.member):
            notes.append(f"fewer rollouts to learn from in a pool than J = {max(short)}: the round goes on with those")
        self.watch.note("; ".join(notes))

    def _checkpoint(self) -> None:
        """Keeps the state after this round, unless it is kept already."""
        if self.folder is not None:
            self.folder.checkpoint(self.round, self._save)
        elif shards(self.config, self.ranks) and self._kept != self.round:
            for node in self.nodes:  # to hand their shards to the leader, which writes
                node.policy.save(Path(os.devnull))
                if node.learner:
                    node.learner.save(Path(os.devnull))
        self._kept = self.round

    def _save(self, folder: Path) -> None:
        self.each(partial(node.save, folder / node.name) for node in self.nodes)


@dataclasses.dataclass(frozen=True)
class Member:
    """A node's name and place in a swarm that spans processes."""

    name: str
    swarm: Swarm
    tell: Callable[[Mapping[str, Any], Sequence[Mapping[str, Any]]], None] | None = None
    """Is told of each round: its metrics, and the rows of what was learned from."""
    panel: Panel | None = None
    """The judges that the node asks after each round."""


@dataclasses.dataclass(frozen=True)
class Crew:
    """What nodes answer with, and the company in which they do."""

    policies: Sequence[AnyPolicy]
    company: Company | None


class Watcher(Protocol):
    """Who is told how the run goes."""

    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None: ...


def checkpoint_bytes(policies: Sequence[AnyPolicy], config: Config) -> int:
    """About what a checkpoint takes: trained weights, the optimiser's states and, with `beta`, the reference's copy."""
    remote = [policy for policy in policies if isinstance(policy, RemotePolicy)]
    here = (policy for policy in policies if not isinstance(policy, EndpointPolicy | RemotePolicy))
    weights = (weight for policy in here for weight in policy.lm.model.parameters())
    trained: int = sum(weight.numel() for weight in weights if weight.requires_grad) + sum(p.trained for p in remote)
    reference = 4 if config.learner.beta and not config.policy.lora_r else 0
    return round((4 + STATE_BYTES[config.learner.optim] + reference) * trained)


def node_names(config: Config) -> list[str]:
    """The names of the nodes of one process."""
    return [f"node-{number}" for number in range(1, config.swarm.nodes + 1)]
