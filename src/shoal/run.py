"""A swarm in one process: builds its nodes, runs them round by round, and keeps the run's folder.

The nodes of one process act in step, as in the paper's controlled experiment: all answer and share, then all learn.
This makes a run repeatable; a `Node` itself waits for nobody.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

import torch
from transformers import AutoConfig, AutoModelForCausalLM

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
from shoal.policy.loading import _source as source_of
from shoal.policy.lora import add_adapters, base_name, load_base, restore_adapters
from shoal.policy.stacked import StackedPolicy, stack
from shoal.protocols import Learner, Policy, Swarm
from shoal.ranks import ALONE, Ranks
from shoal.rollout import seed_of
from shoal.sampling import UniformSampler
from shoal.scoring import Scorer
from shoal.swarm.memory import MemorySwarm
from shoal.swarm.pool import Pool
from shoal.tasks import Tasks, Verifier
from shoal.workers import RemoteLearner, RemotePolicy, Workers

T = TypeVar("T")
AnyPolicy = LanguagePolicy | EndpointPolicy | RemotePolicy

SMALL: Final = 20_000_000
"""Parameters up to which nodes gain by workers: a larger model keeps all cores busy by itself."""
WORTH_WORKERS: Final = 2_000
"""Completions of all nodes in a run below which it is over before workers would have paid for their start."""


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
        self.member = member
        self.workers: Workers | None = None
        self._own_verifier = Verifier(config.tasks)
        try:
            self._build(config, ranks, checkpoint)
        except BaseException:
            self.close()
            raise

    def _build(self, config: Config, ranks: Ranks, checkpoint: Path | None) -> None:
        use_threads(config, ranks)
        self.placement = place_rank(config, ranks)
        names = [self.member.name] if self.member else node_names(config)
        policies = self._policies(names, checkpoint)  # first, since workers start meanwhile
        self.tasks = Tasks(config.tasks)
        self.verifier = self._own_verifier if ranks.size == 1 else LedVerifier(self._own_verifier, ranks)
        self.held_out = self.tasks.held_out(_number(self.config.evaluation.questions), config.seed)
        self.swarm = MemorySwarm(config.seed)
        if self.workers:
            self.workers.wait_ready(self.watch.status)
        if self.folder is not None:  # for the old and the new
            ensure_space(self.folder.path, checkpoint_bytes(policies, config) * (1 if checkpoint else 2))
        self.company, policies = self._together(policies)
        self.nodes = [self._node(name, policy) for name, policy in zip(names, policies, strict=True)]
        if checkpoint:
            self.each(partial(node.load, checkpoint / node.name) for node in self.nodes)
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
            figures = self.each(partial(self._evaluate, node) for node in self.nodes)
            now = time.time()
            rows = [{"round": 0, "node": n.name, "time": now, **f} for n, f in zip(self.nodes, figures, strict=True)]
            self._write_down(rows, [])
            self._checkpoint()
        while self.round < config.rounds and not self.ranks.any(stop.is_set()):
            self.each(node.act for node in self.nodes)
            lessons = self.each(node.learn for node in self.nodes)
            rows = [round_metrics(node, lesson) for node, lesson in zip(self.nodes, lessons, strict=True)]
            every = config.evaluation.every
            if self.round == config.rounds or (every and self.round % every == 0):
                figures = self.each(partial(self._evaluate, node) for node in self.nodes)
                rows = [row | found for row, found in zip(rows, figures, strict=True)]
            self._tell(lessons)
            self._write_down(rows, lessons)
            if self.round % config.checkpoint_every == 0:
                self._checkpoint()
        self._checkpoint()  # unless the round has one

    def close(self) -> None:
        self._own_verifier.close()
        if self.workers:
            self.workers.close()

    def _policies(self, names: Sequence[str], checkpoint: Path | None) -> list[AnyPolicy]:
        """The nodes' policies. Those in workers are on their way: nothing was waited for."""
        config = self.config
        sources = {name: config.policy.model[number % len(config.policy.model)] for number, name in enumerate(names)}
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

    def _node(self, name: str, policy: AnyPolicy) -> Node:
        config = self.config
        scorer = Scorer(self.tasks, self.verifier)
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
        self.each(partial(node.save, folder / node.name) for node in self.nodes)


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


def count_workers(config: Config, learning: Mapping[str, str], placement: Placement, ranks: Ranks, joined: bool) -> int:
    """How many worker processes keep the models of the nodes in `learning`; 0: this one does."""
    wanted, stacked = config.swarm.workers, config.swarm.stacked
    possible = (
        len(learning) > 0
        and placement.device.type == "cpu"
        and ranks.size == 1
        and not joined
        and config.policy.engine == "transformers"
        and stacked is not True
    )
    if wanted != "auto":
        if wanted and not possible:
            raise UserError(
                "swarm.workers needs nodes that learn in one process of `shoal run`, with --device cpu and without "
                "stacked nodes, vLLM or several ranks; take --workers 0 or auto"
            )
        return min(wanted, len(learning))
    count = min(len(learning), (os.cpu_count() or 1) // max(1, config.threads))
    completions = config.rounds * len(learning) * config.swarm.local * config.policy.num_generations
    if not possible or count < 2 or completions < WORTH_WORKERS:
        return 0
    return count if all(parameters(source) <= SMALL for source in set(learning.values())) else 0


def parameters(model: str) -> float:
    """How many a model has, by its configuration, or by the size of a GGUF file of 4 bits each; infinite where that
    does not say."""
    try:
        source, options = source_of(model)
        if "gguf_file" in options:
            size: int = (Path(source) / options["gguf_file"]).stat().st_size
            return 2.0 * size
        with torch.device("meta"):
            found: Any = AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(source, **options))
    except Exception:  # whatever is wrong with it is told where it is loaded
        return math.inf
    return float(sum(weight.numel() for weight in found.parameters()))


def make_nodes(
    config: Config, sources: Mapping[str, str], checkpoint: Path | None, threads: int, status: Callable[[str], None]
) -> dict[str, tuple[LanguagePolicy, Learner]]:
    """What a worker keeps of its nodes, by their names."""
    torch.set_num_threads(threads)
    policies = make_policies(config, sources, checkpoint, place_rank(config, ALONE), ALONE, status)
    kept = {n: p for n, p in zip(sources, policies, strict=True) if isinstance(p, LanguagePolicy)}
    return {name: (policy, make_learner(config, policy)) for name, policy in kept.items()}


def make_policies(
    config: Config,
    sources: Mapping[str, str],
    checkpoint: Path | None,
    placement: Placement,
    ranks: Ranks,
    status: Callable[[str], None],
) -> list[LanguagePolicy | EndpointPolicy]:
    """Policies of nodes that are named, from their models (`sources`), or as they were in `checkpoint`."""
    # What is to be sharded may be too large for where it computes, and cannot be copied.
    sharded = shards(config, ranks)
    device = torch.device("cpu") if sharded else placement.device
    models: dict[str, LanguageModel] = {}
    policies: list[LanguagePolicy | EndpointPolicy] = []
    for name, source in sources.items():
        if is_endpoint(source):
            status(f"asking {source}")
            policies.append(endpoint_policy(config, source))
            continue
        if config.policy.lora_r:
            status(f"loading {display_name(source)}")
            loaded: LanguageModel = _adapted(config, name, source, checkpoint, models, placement.device)
        elif checkpoint:
            loaded = dataclasses.replace(load(str(checkpoint / name), device), name=source)
        elif source in models:
            loaded = _copy(models[source])
        else:
            status(f"loading {display_name(source)}")
            loaded = models[source] = load(source, device)
            if sharded:
                del models[source]
        policies.append(language_policy(config, loaded, placement, ranks))
    return policies


def _adapted(
    config: Config,
    name: str,
    source: str,
    checkpoint: Path | None,
    bases: dict[str, LanguageModel],
    device: torch.device,
) -> LanguageModel:
    """A node's own adapters on one of `bases`, which the nodes share; what is missing there is loaded."""
    folder = checkpoint / name if checkpoint else None
    wanted = base_name(folder) if folder else source
    if wanted not in bases:
        bases[wanted] = load_base(folder, device) if folder else load(wanted, device)
    if folder:
        loaded = restore_adapters(bases[wanted], config.policy, folder)
    else:
        loaded = add_adapters(bases[wanted], config.policy, seed_of(config.seed, name, "adapters"))
    return dataclasses.replace(loaded, name=source)


def make_learner(config: Config, policy: LanguagePolicy, ranks: Ranks = ALONE) -> Learner:
    """What trains the model of `policy`."""
    rate = config.learner.learning_rate
    if rate == "auto":
        rate = default_learning_rate(policy.name, config.policy.lora_r)
    several = (ranks, policy.sharded) if ranks.size > 1 else ()
    kind = StackedLearner if isinstance(policy, StackedPolicy) else GRPOLearner
    return kind(policy, config.learner, rate, *several)


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
