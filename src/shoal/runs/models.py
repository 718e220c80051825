"""What the nodes of one process answer and learn with: models loaded, copied or taken from a checkpoint, each with the
engine that decodes and the learner that trains it, placed where they compute.
"""

from __future__ import annotations

import copy
import dataclasses
import math
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from shoal.config.policy import default_learning_rate, is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import check_architecture
from shoal.learn.stacked import StackedLearner
from shoal.parallel.rank_zero import LedPolicy
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.device import Placement, place
from shoal.policy.draw import Sampling
from shoal.policy.endpoint import EndpointPolicy
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, display_name, load, source_of
from shoal.policy.lora import add_adapters, base_name, load_base, restore_adapters
from shoal.policy.stacked import StackedPolicy
from shoal.protocols import Learner, Policy
from shoal.rollout import seed_of

SMALL: Final = 20_000_000
"""Parameters up to which nodes gain by workers: a larger model keeps all cores busy by itself."""
WORTH_WORKERS: Final = 2_000
"""Completions of all nodes in a run below which it is over before workers would have paid for their start."""


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
    mixture = config.swarm.local, config.swarm.external
    if isinstance(policy, StackedPolicy):
        return StackedLearner(policy, config.learner, rate, mixture)
    sharded = policy.sharded if ranks.size > 1 else None
    return GRPOLearner(policy, config.learner, rate, ranks, sharded, mixture)


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
        from shoal.parallel.sharding import Sharded  # not every torch has it

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
    times = policy.endpoint_timeout, policy.endpoint_requests
    return EndpointPolicy(url, sampling_of(config), *times, sends_key=policy.sends_key)


def sampling_of(config: Config) -> Sampling:
    """How a run decodes."""
    policy = config.policy
    return Sampling(policy.temperature, policy.top_p, number(policy.max_completion_length))


def use_threads(config: Config, ranks: Ranks = ALONE) -> None:
    """All cores, divided among the ranks of this machine, unless `config` says how many."""
    torch.set_num_threads(config.threads or max(1, (os.cpu_count() or 1) // ranks.local_size))


def _copy(loaded: LanguageModel) -> LanguageModel:
    """A model of its own with the same weights."""
    return dataclasses.replace(loaded, model=copy.deepcopy(loaded.model))


def number(value: int | str) -> int:
    """A setting whose `auto` has been resolved."""
    assert isinstance(value, int)
    return value
