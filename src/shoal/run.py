"""A swarm in one process: builds its nodes, runs them round by round, and keeps the run's folder.

The nodes of one process act in step, as in the paper's controlled experiment: all answer and share, then all learn.
This makes a run repeatable; a `Node` itself waits for nobody.
"""

from __future__ import annotations

import copy
import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

import torch

from shoal.config import Config, default_learning_rate, is_endpoint
from shoal.errors import UserError
from shoal.folder import RunFolder, ensure_space
from shoal.judge import evaluate
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import check_architecture
from shoal.learn.optim import STATE_BYTES
from shoal.learn.stacked import StackedLearner
from shoal.led import LedPolicy, LedVerifier
from shoal.metrics import rollout_rows, round_metrics
from shoal.node import Lesson, Node
from shoal.policy.company import Company
from shoal.policy.device import Placement, place
from shoal.policy.draw import Sampling
from shoal.policy.endpoint import EndpointPolicy
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, display_name, load
from shoal.policy.lora import add_adapters, base_name, load_base, restore_adapters
from shoal.policy.stacked import StackedPolicy, stack
from shoal.protocols import Policy, Swarm, TrainablePolicy
from shoal.ranks import ALONE, Ranks
from shoal.rollout import seed_of
from shoal.sampling import UniformSampler
from shoal.scoring import Scorer
from shoal.swarm.memory import MemorySwarm
from shoal.swarm.pool import Pool
from shoal.tasks import Tasks, Verifier

T = TypeVar("T")


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
    ) -> None:
        """Builds the nodes: from their models, or as they were in `checkpoint`. `folder`: None where `ranks` has
        another leader, who writes. `member`: the one node of this process, where the swarm is elsewhere."""
        self.config = config.resolved()
        self.folder = folder
        self.watch = watch
        self.ranks = ranks
        self._kept = -1
        """The round that has a checkpoint."""
        use_threads(config, ranks)
        self.placement = place_rank(config, ranks)
        self.tasks = Tasks(config.tasks)
        self._own_verifier = Verifier(config.tasks)
        self.verifier = self._own_verifier if ranks.size == 1 else LedVerifier(self._own_verifier, ranks)
        self.held_out = self.tasks.held_out(_number(self.config.evaluation.questions), config.seed)
        self.swarm = MemorySwarm(config.seed)
        self.member = member
        names = [member.name] if member else node_names(config)
        policies = self._policies(names, checkpoint)
        if folder is not None:  # for the old and the new
            ensure_space(folder.path, checkpoint_bytes(policies, config) * (1 if checkpoint else 2))
        self.company, policies = self._together(policies)
        self.nodes = [self._node(name, policy) for name, policy in zip(names, policies, strict=True)]
        if checkpoint:
            for node in self.nodes:
                node.load(checkpoint / node.name)
            self._kept = self.round

    @property
    def round(self) -> int:
        """Rounds done."""
        return self.nodes[0].round

    def go(self, stop: threading.Event) -> None:
        """Runs the rounds that are left. Once `stop` is set it ends after the round in hand, with a checkpoint."""
        config = self.config
        if self.round == 0:
            self.watch.status("asking held-out questions")
            figures = self._each(partial(self._evaluate, node) for node in self.nodes)
            now = time.time()
            rows = [{"round": 0, "node": n.name, "time": now, **f} for n, f in zip(self.nodes, figures, strict=True)]
            self._write_down(rows, [])
            self._checkpoint()
        while self.round < config.rounds and not self.ranks.any(stop.is_set()):
            self._each(node.act for node in self.nodes)
            lessons = self._each(node.learn for node in self.nodes)
            rows = [round_metrics(node, lesson) for node, lesson in zip(self.nodes, lessons, strict=True)]
            every = config.evaluation.every
            if self.round == config.rounds or (every and self.round % every == 0):
                figures = self._each(partial(self._evaluate, node) for node in self.nodes)
                rows = [row | found for row, found in zip(rows, figures, strict=True)]
            self._tell(lessons)
            self._write_down(rows, lessons)
            if self.round % config.checkpoint_every == 0:
                self._checkpoint()
        self._checkpoint()  # unless the round has one

    def close(self) -> None:
        self._own_verifier.close()

    def _policies(self, names: Sequence[str], checkpoint: Path | None) -> list[LanguagePolicy | EndpointPolicy]:
        config = self.config.policy
        models: dict[str, LanguageModel] = {}
        policies: list[LanguagePolicy | EndpointPolicy] = []
        for number, name in enumerate(names):
            source = config.model[number % len(config.model)]
            if is_endpoint(source):
                self.watch.status(f"asking {source}")
                policies.append(endpoint_policy(self.config, source))
                continue
            if config.lora_r:
                self.watch.status(f"loading {display_name(source)}")
                loaded = self._adapted(name, source, checkpoint, models)
            elif checkpoint:
                loaded = dataclasses.replace(load(str(checkpoint / name), self._loading_device), name=source)
            elif source in models:
                loaded = _copy(models[source])
            else:
                self.watch.status(f"loading {display_name(source)}")
                loaded = models[source] = load(source, self._loading_device)
                if shards(self.config, self.ranks):
                    del models[source]  # what is sharded cannot be copied
            policies.append(language_policy(self.config, loaded, self.placement, self.ranks))
        return policies

    @property
    def _loading_device(self) -> torch.device:
        """Where a model comes into being: what is to be sharded may be too large for where it computes."""
        return torch.device("cpu") if shards(self.config, self.ranks) else self.placement.device

    def _adapted(
        self, name: str, source: str, checkpoint: Path | None, bases: dict[str, LanguageModel]
    ) -> LanguageModel:
        """A node's own adapters on one of `bases`, which the nodes share; what is missing there is loaded."""
        config, device = self.config, self.placement.device
        folder = checkpoint / name if checkpoint else None
        wanted = base_name(folder) if folder else source
        if wanted not in bases:
            bases[wanted] = load_base(folder, device) if folder else load(wanted, device)
        if folder:
            loaded = restore_adapters(bases[wanted], config.policy, folder)
        else:
            loaded = add_adapters(bases[wanted], config.policy, seed_of(config.seed, name, "adapters"))
        return dataclasses.replace(loaded, name=source)

    def _together(self, policies: list[LanguagePolicy | EndpointPolicy]) -> tuple[Company | None, list[Any]]:
        """The nodes' policies as one batched program, where that is wanted and can be."""
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

    def _each(self, calls: Iterable[Callable[[], T]]) -> list[T]:
        """What all of `calls` give: one after the other, or meeting in joint batches."""
        return self.company.together(list(calls)) if self.company else [call() for call in calls]

    def _node(self, name: str, policy: LanguagePolicy | EndpointPolicy) -> Node:
        config = self.config
        rate = config.learner.learning_rate
        if rate == "auto":
            rate = default_learning_rate(policy.name, config.policy.lora_r)
        scorer = Scorer(self.tasks, self.verifier)
        answers: Policy = policy
        learner = None
        if not isinstance(policy, EndpointPolicy):
            several = (self.ranks, policy.sharded) if self.ranks.size > 1 else ()
            kind = StackedLearner if isinstance(policy, StackedPolicy) else GRPOLearner
            learner = kind(policy, config.learner, rate, *several)
        elif self.ranks.size > 1:
            answers = LedPolicy(policy, self.ranks)
        return Node(
            name=name,
            seed=config.seed,
            scorer=scorer,
            policy=answers,
            learner=learner,
            swarm=self.member.swarm if self.member else self.swarm.join(name, scorer),
            sampler=UniformSampler(),
            pool=Pool(config.swarm.pool_size, config.swarm.max_age),
            local=config.swarm.local,
            external=config.swarm.external,
            num_generations=config.policy.num_generations,
        )

    def _evaluate(self, node: Node) -> dict[str, Any]:
        result = evaluate(
            node.policy,
            self.verifier,
            self.held_out,
            _number(self.config.evaluation.samples),
            seed_of(self.config.seed, node.name, node.round, "evaluate"),
        )
        return {
            "eval/pass@1": result.pass_at(1).value,
            **{f"eval/pass@1/{task}": result.pass_at(1, task).value for task in result.correct},
        }

    def _write_down(self, rows: Sequence[Mapping[str, Any]], lessons: Sequence[Lesson]) -> None:
        if self.folder is not None:
            self.folder.log(rows)
            self.folder.save_rollouts(self.round, [row for lesson in lessons for row in rollout_rows(lesson)])
        self.watch.update(rows, self.round)

    def _tell(self, lessons: Sequence[Lesson]) -> None:
        wanted = self.config.swarm.external
        taken = [len(lesson.foreign) for node, lesson in zip(self.nodes, lessons, strict=True) if node.learner]
        fewest = min(taken, default=wanted)
        notes = [
            f"{node.name} gives fewer rollouts: {trouble}" for node in self.nodes if (trouble := node.policy.trouble)
        ]
        if fewest < wanted and (len(self.nodes) > 1 or self.member):
            notes.append(f"fewer live rollouts in a pool than J = {wanted}: the round goes on with those")
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
        for node in self.nodes:
            node.save(folder / node.name)


@dataclasses.dataclass(frozen=True)
class Member:
    """A node's name and place in a swarm that spans processes."""

    name: str
    swarm: Swarm


class Watcher(Protocol):
    """Who is told how the run goes."""

    def status(self, text: str) -> None: ...

    def note(self, text: str) -> None: ...

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None: ...


def build_policy(config: Config, model: str, ranks: Ranks = ALONE) -> Policy:
    """A policy of its own, placed and decoding as `config` says."""
    if is_endpoint(model):
        endpoint = endpoint_policy(config, model)
        return LedPolicy(endpoint, ranks) if ranks.size > 1 else endpoint
    use_threads(config, ranks)
    return language_policy(config, model, place_rank(config, ranks), ranks)


def language_policy(
    config: Config, model: str | LanguageModel, placement: Placement, ranks: Ranks = ALONE
) -> LanguagePolicy:
    """A policy with the engine that `config` names."""
    if config.policy.engine == "vllm":
        if ranks.size > 1:
            raise UserError("--engine vllm has one process for a GPU: start it without torchrun, or leave it away")
        from shoal.policy.vllm import VLLMPolicy  # heavy, and rarely there

        return VLLMPolicy(model, sampling_of(config), placement, config.policy.vllm_gpu_memory_utilization)
    sharded = None
    if shards(config, ranks):
        if config.policy.lora_r:
            raise UserError("--learner.fsdp shards whole models: take --lora-r 0, or leave fsdp away")
        if config.learner.optim != "adamw":
            raise UserError(f"--optim {config.learner.optim} does not know sharded weights: take adamw with fsdp")
        model = load(model, torch.device("cpu")) if isinstance(model, str) else model
        check_architecture(model.model, model.name)
        from shoal.sharding import Sharded  # not every torch has it

        sharded = Sharded(model.model, ranks, placement.device, placement.dtype)
    return LanguagePolicy(model, sampling_of(config), placement, ranks, sharded)


def shards(config: Config, ranks: Ranks) -> bool:
    """Whether weights are sharded over ranks."""
    return config.learner.fsdp and ranks.size > 1


def place_rank(config: Config, ranks: Ranks) -> Placement:
    """A rank's own GPU; without any, the processor, for ranks cannot talk over others."""
    device = config.policy.device
    if ranks.size > 1 and device in ("auto", "cuda"):
        device = f"cuda:{ranks.local_rank}" if device == "cuda" or torch.cuda.is_available() else "cpu"
    placement = place(device, config.policy.dtype)
    if ranks.size > 1 and placement.device.type not in ("cpu", "cuda"):
        raise UserError(f"several ranks need --device cuda or cpu, and this is {placement.device}")
    if ranks.size > 1 and placement.device.type == "cuda":
        torch.cuda.set_device(placement.device)
    return placement


def endpoint_policy(config: Config, url: str) -> EndpointPolicy:
    policy = config.policy
    return EndpointPolicy(url, sampling_of(config), policy.endpoint_timeout, policy.endpoint_requests)


def sampling_of(config: Config) -> Sampling:
    """How a run decodes."""
    policy = config.policy
    return Sampling(policy.temperature, policy.top_p, _number(policy.max_completion_length))


def checkpoint_bytes(policies: Sequence[TrainablePolicy | EndpointPolicy], config: Config) -> int:
    """About what a checkpoint takes: trained weights, the optimiser's states and, with `beta`, the reference's copy."""
    learning = (policy for policy in policies if not isinstance(policy, EndpointPolicy))
    weights = (weight for policy in learning for weight in policy.lm.model.parameters())
    trained: int = sum(weight.numel() for weight in weights if weight.requires_grad)
    reference = 4 if config.learner.beta and not config.policy.lora_r else 0
    return round((4 + STATE_BYTES[config.learner.optim] + reference) * trained)


def node_names(config: Config) -> list[str]:
    """The names of the nodes of one process."""
    return [f"node-{number}" for number in range(1, config.swarm.nodes + 1)]


def use_threads(config: Config, ranks: Ranks = ALONE) -> None:
    """All cores, divided among the ranks of this machine, unless `config` says how many."""
    torch.set_num_threads(config.threads or max(1, (os.cpu_count() or 1) // ranks.local_size))


def _copy(loaded: LanguageModel) -> LanguageModel:
    """A model of its own with the same weights."""
    return dataclasses.replace(loaded, model=copy.deepcopy(loaded.model))


def _number(value: int | str) -> int:
    """A setting whose `auto` has been resolved."""
    assert isinstance(value, int)
    return value
