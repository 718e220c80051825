"""Builds what the nodes of one process answer and learn with: models, engines that decode, and learners."""

from __future__ import annotations

import copy
import dataclasses
import math
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import huggingface_hub
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from shoal.config.policy import default_learning_rate, is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import check_architecture
from shoal.learn.optim import STATE_BYTES
from shoal.parallel.rank_zero import RankZeroPolicy
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.adapters import base_name
from shoal.policy.decoders.base import OWN, Sampling, decoder_of
from shoal.policy.device import Placement, place
from shoal.policy.endpoint import EndpointPolicy
from shoal.policy.free_memory import free_ram
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, display_name, load, load_base, source_of
from shoal.policy.lora import add_adapters, restore_adapters
from shoal.policy.vision_families import FAMILIES
from shoal.protocols import Policy
from shoal.rollout import seed_of
from shoal.runs.check_questions import check_questions
from shoal.runs.cores import usable_cores
from shoal.sandbox.verifier import Verifier

SMALL: Final = 200_000_000
"""Parameters up to which workers help: a larger model keeps all cores busy by itself."""
WORKER_BYTES: Final = 500_000_000
"""Memory of a worker without models."""
PASS_BYTES: Final = 20
"""For each parameter of a model: what learning and answering take beside weights and optimizer, in a worker."""
FREE_SHARE: Final = 0.8
"""Workers may take this share of the free memory."""
WORTH_WORKERS: Final = 2_000
"""Completions of all nodes in a run below which starting workers takes longer than they save."""


def count_workers(config: Config, learning: Mapping[str, str], placement: Placement, ranks: Ranks, joined: bool) -> int:
    """How many worker processes keep the models of the nodes in `learning`; 0: this process does."""
    wanted = config.round.workers
    possible = (
        len(learning) > 0
        and placement.device.type == "cpu"
        and ranks.size == 1
        and not joined
        and config.policy.engine == OWN
        and not config.learner.factory
        and not config.policy.factory
    )
    if wanted != "auto":
        if wanted and not possible:
            raise UserError(
                "round.workers needs nodes that learn in one process of `shoal run`, with --device cpu and without "
                "another --engine, several ranks, or a policy or learner of your own; use --workers 0 or auto"
            )
        return min(wanted, len(learning))
    count = min(len(learning), usable_cores() // max(1, config.threads))
    completions = config.rounds * len(learning) * config.round.local * config.policy.num_generations
    if not possible or count < 2 or completions < WORTH_WORKERS:
        return 0
    largest = max(parameters(source) for source in learning.values())
    if largest > SMALL:
        return 0
    copies = learning if not config.policy.lora_r else range(count)  # nodes of a process share frozen weights
    needed = count * (WORKER_BYTES + PASS_BYTES * largest) + len(copies) * lasting_bytes(config) * largest
    return count if needed <= FREE_SHARE * free_ram() else 0


def expected_workers(config: Config, ranks: Ranks = ALONE) -> int:
    """How many worker processes `shoal run` would have with these settings."""
    models = config.policy.model
    names = {f"node-{place + 1}": models[place % len(models)] for place in range(config.round.nodes)}
    learning = {node: name for node, name in names.items() if not is_endpoint(name)}
    return count_workers(config, learning, place_rank(config, ranks), ranks, joined=False)


def lasting_bytes(config: Config) -> float:
    """For each parameter of a model: the bytes that its weights and the state of its optimizer take at least."""
    return 4 if config.policy.lora_r else 4 + STATE_BYTES.get(config.learner.optim, 0)


@cache
def parameters(model: str) -> float:
    """The number of parameters, by the model's configuration, or by the size of a GGUF file with 4 bits for each.
    Infinite if unknown."""
    huggingface_hub.logging.set_verbosity_error()  # it would report each retry
    try:
        source, options = source_of(model)
        if "gguf_file" in options:
            size: int = (Path(source) / options["gguf_file"]).stat().st_size
            return 2.0 * size
        with torch.device("meta"):
            of = AutoConfig.from_pretrained(source, **options)
            auto = AutoModelForImageTextToText if of.model_type in FAMILIES else AutoModelForCausalLM
            found: Any = auto.from_config(of)
    except Exception:  # loading the model reports what is wrong with it
        return math.inf
    return float(sum(weight.numel() for weight in found.parameters()))


def check_memory(config: Config, sources: Mapping[str, str], placement: Placement) -> None:
    """Raises `UserError` if the nodes' weights and optimizer states alone are more than what is free here. `shoal
    doctor` estimates all of a run's memory."""
    if placement.device.type != "cpu" or config.learner.fsdp:
        return
    copies = Counter(source for source in sources.values() if not is_endpoint(source))
    sizes = {source: lasting_bytes(config) * parameters(source) for source in copies}
    known = {source: size for source, size in sizes.items() if math.isfinite(size)}
    needed = sum(size * (1 if config.policy.lora_r else copies[source]) for source, size in known.items())
    free = free_ram()
    if needed > free:
        name = display_name(max(known, key=lambda source: known[source]))
        raise UserError(
            f"weights and optimizers of this run take {needed / 1e9:.1f} GB or more ('{name}' is its largest model), "
            f"and {free / 1e9:.1f} GB are free: "
            "take a smaller model, fewer nodes (--nodes) or adapters (--lora-r 16)"
        )


def make_nodes(
    config: Config, checkpoint: Path | None, threads: int, sources: Mapping[str, str], status: Callable[[str], None]
) -> dict[str, tuple[LanguagePolicy, GRPOLearner]]:
    """The policies and learners of nodes, by their names: what a worker keeps."""
    torch.set_num_threads(threads)
    policies = make_policies(config, sources, checkpoint, place_rank(config, ALONE), ALONE, status)
    kept = {n: p for n, p in zip(sources, policies, strict=True) if isinstance(p, LanguagePolicy)}
    # Its process starts when an environment has to answer, and ends with this one, however that ends.
    verifier = Verifier(config.tasks)
    for policy in kept.values():
        policy.replayer = verifier
    return {name: (policy, make_learner(config, policy)) for name, policy in kept.items()}


def make_policies(
    config: Config,
    sources: Mapping[str, str],
    checkpoint: Path | None,
    placement: Placement,
    ranks: Ranks,
    status: Callable[[str], None],
) -> list[LanguagePolicy | EndpointPolicy]:
    """The policies of nodes, by name, from their models (`sources`) or from `checkpoint`."""
    sharded = shards(config, ranks)
    device = torch.device("cpu") if sharded else placement.device  # whole, it may not fit where it computes
    if not checkpoint:
        check_memory(config, sources, placement)
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
            loaded = dataclasses.replace(models[source], model=copy.deepcopy(models[source].model))
        else:
            status(f"loading {display_name(source)}")
            loaded = models[source] = load(source, device)
            if sharded:  # a sharded model cannot be copied
                del models[source]
        policies.append(language_policy(config, loaded, placement, ranks))
    language = [policy for policy in policies if isinstance(policy, LanguagePolicy)]
    check_questions(config, language)
    return policies


def _adapted(
    config: Config,
    name: str,
    source: str,
    checkpoint: Path | None,
    bases: dict[str, LanguageModel],
    device: torch.device,
) -> LanguageModel:
    """A node's own adapters on one of `bases`, which nodes share. Loads the base if it is not there yet."""
    folder = checkpoint / name if checkpoint else None
    wanted = base_name(folder) if folder else source
    if wanted not in bases:
        bases[wanted] = load_base(folder, device) if folder else load(wanted, device)
    if folder:
        loaded = restore_adapters(bases[wanted], config.policy.lora_r, folder)
    else:
        loaded = add_adapters(bases[wanted], config.policy.lora_r, seed_of(config.seed, name, "adapters"))
    return dataclasses.replace(loaded, name=source)


def make_learner(config: Config, policy: LanguagePolicy, ranks: Ranks = ALONE) -> GRPOLearner:
    """The learner that trains the model of `policy`."""
    rate = config.learner.learning_rate
    if rate == "auto":
        rate = default_learning_rate(policy.name, config.policy.lora_r > 0)
    return GRPOLearner(policy, config.learner, config.peers, rate, ranks, policy.sharded)


def build_policy(config: Config, model: str, ranks: Ranks = ALONE) -> Policy:
    """A policy placed and decoding as `config` says."""
    if is_endpoint(model):
        endpoint = endpoint_policy(config, model)
        return RankZeroPolicy(endpoint, ranks) if ranks.size > 1 else endpoint
    use_threads(config, ranks)
    return language_policy(config, model, place_rank(config, ranks), ranks)


def language_policy(
    config: Config, model: str | LanguageModel, placement: Placement, ranks: Ranks = ALONE
) -> LanguagePolicy:
    """A policy with the engine that `config` names."""
    engine = config.policy.engine
    if engine != OWN:
        if ranks.size > 1:
            raise UserError(
                f"--engine {engine} needs one process for each GPU: start it without torchrun, or leave it out"
            )
        return LanguagePolicy(model, sampling_of(config), placement, decoder=decoder_of(engine))
    sharded = None
    if shards(config, ranks):
        if config.policy.lora_r:
            raise UserError("--learner.fsdp shards whole models: use --lora-r 0, or leave fsdp out")
        if config.learner.optim != "adamw":
            raise UserError(f"--optim {config.learner.optim} does not support sharded weights: use adamw with fsdp")
        model = load(model, torch.device("cpu")) if isinstance(model, str) else model
        if model.vision is not None:
            raise UserError(f"--learner.fsdp shards models of text alone, and '{model.name}' reads pictures")
        check_architecture(model.model, model.name)
        from shoal.parallel.sharding import Sharded  # not every torch has it

        sharded = Sharded(model.model, ranks, placement.device, placement.dtype)
    return LanguagePolicy(model, sampling_of(config), placement, ranks, sharded)


def shards(config: Config, ranks: Ranks) -> bool:
    """Whether weights are sharded over ranks."""
    return config.learner.fsdp and ranks.size > 1


def place_rank(config: Config, ranks: Ranks) -> Placement:
    """Where a rank computes: on a GPU of its own, or on the processor. Ranks cannot communicate over other devices."""
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
    """The endpoint at `url` as a policy."""
    policy = config.policy
    return EndpointPolicy(url, sampling_of(config), requests=policy.endpoint_requests, sends_key=policy.sends_key)


def sampling_of(config: Config) -> Sampling:
    """How a run decodes."""
    policy = config.policy
    return Sampling(policy.temperature, policy.top_p, int(policy.max_completion_length))


def use_threads(config: Config, ranks: Ranks = ALONE) -> None:
    """Uses as many threads as `config` says, or all usable cores, divided among the ranks of this machine."""
    torch.set_num_threads(config.threads or max(1, usable_cores() // ranks.local_size))
