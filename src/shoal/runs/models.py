"""Builds what the nodes of one process answer and learn with: models, engines that decode, and learners."""

import contextlib
import copy
import dataclasses
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from shoal.config.own_code import find
from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.parallel.ranks import ALONE, Ranks
from shoal.policy.adapters import base_name
from shoal.policy.decoders.base import OWN, Sampling, decoder_of
from shoal.policy.device import Placement
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, display_name, load, load_base
from shoal.policy.lora import add_adapters, restore_adapters
from shoal.protocols import Policy
from shoal.rollout import seed_of
from shoal.runs.machine import check_memory, compute_with, place_rank, use_threads
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.draw import QuestionFailed

OF_ONE_PROCESS = "endpoints and policies of your own take one process: start it without torchrun"


def make_nodes(
    config: Config, checkpoint: Path | None, threads: int, sources: Mapping[str, str], status: Callable[[str], None]
) -> dict[str, tuple[LanguagePolicy, GRPOLearner]]:
    """The policies and learners of nodes, by their names: what a worker keeps."""
    compute_with(threads)
    policies = make_policies(config, sources, checkpoint, place_rank(config, ALONE), ALONE, status)
    kept = {n: p for n, p in zip(sources, policies, strict=True) if isinstance(p, LanguagePolicy)}
    # Its process starts when an environment has to answer, and ends with this one, however that ends.
    verifier = Verifier(config.tasks)
    for policy in kept.values():
        policy.replayer = verifier
    return {name: (policy, GRPOLearner(policy, config.learner, config.peers)) for name, policy in kept.items()}


def make_policies(
    config: Config,
    sources: Mapping[str, str],
    checkpoint: Path | None,
    placement: Placement,
    ranks: Ranks,
    status: Callable[[str], None],
) -> list[Policy]:
    """The policies of nodes, by name, from their models (`sources`) or from `checkpoint`."""
    if not checkpoint:
        check_memory(config, sources, placement)
    tasks = Tasks(config.tasks)
    asking = tasks.asking()
    models: dict[str, LanguageModel] = {}
    policies: list[Policy] = []
    for name, source in sources.items():
        if is_endpoint(source):
            status(f"asking {source}")
            policies.append(endpoint_policy(config, source))
            continue
        if config.policy.lora_r:
            status(f"loading {display_name(source)}")
            loaded: LanguageModel = _adapted(config, name, source, checkpoint, models, placement.device)
        elif checkpoint:
            loaded = dataclasses.replace(load(str(checkpoint / name), placement.device), name=source)
        elif source in models:
            loaded = dataclasses.replace(models[source], model=copy.deepcopy(models[source].model))
        else:
            status(f"loading {display_name(source)}")
            loaded = models[source] = load(source, placement.device)
        loaded = dataclasses.replace(loaded, asking=asking)  # which a saved model says itself
        answers: Any = loaded.model.generation_config
        answers.max_new_tokens = int(config.policy.max_completion_length)
        policies.append(language_policy(config, loaded, placement, ranks))
    language = [policy for policy in policies if isinstance(policy, LanguagePolicy)]
    check_questions(tasks, language)
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


def build_policy(config: Config, model: str, ranks: Ranks = ALONE) -> Policy:
    """A policy placed and decoding as `config` says."""
    if is_endpoint(model):
        if ranks.size > 1:
            raise UserError(OF_ONE_PROCESS)
        return endpoint_policy(config, model)
    use_threads(config, ranks)
    return language_policy(config, model, place_rank(config, ranks), ranks)


def language_policy(
    config: Config, model: str | LanguageModel, placement: Placement, ranks: Ranks = ALONE
) -> LanguagePolicy:
    """A policy with the engine that `config` names."""
    engine = config.policy.engine
    if engine == OWN:
        return LanguagePolicy(model, sampling_of(config), placement, ranks)
    if ranks.size > 1:
        raise UserError(f"--engine {engine} needs one process for each GPU: start it without torchrun, or leave it out")
    return LanguagePolicy(model, sampling_of(config), placement, decoder=decoder_of(engine))


def endpoint_policy(config: Config, url: str) -> Policy:
    """The endpoint at `url` as a policy, which another package has. Raises `UserError` without it."""
    make: Callable[..., Policy] = find("endpoint", "policy", {}, "shoal.policies")
    return make(url, sampling_of(config), sends_key=config.policy.sends_key)


def sampling_of(config: Config) -> Sampling:
    """How a run decodes."""
    policy = config.policy
    return Sampling(policy.temperature, policy.top_p, int(policy.max_completion_length))


def check_questions(tasks: Tasks, policies: Sequence[LanguagePolicy]) -> None:
    """Raises `UserError` if a task shows pictures and a model reads text alone, or if its first question leaves no room
    for an answer. Others that are too long get none, and a run says how many."""
    for label in tasks.labels:
        with contextlib.suppress(QuestionFailed):  # a run goes on without such questions, and says so
            question = tasks.made(label, 0, 0)
            for policy in policies:
                if not policy.has_room(question):  # which says what is wrong with pictures
                    raise UserError(
                        f"a question of the task {label!r} takes {len(policy.prompt_ids(question))} tokens, and "
                        f"'{policy.name}' reads {policy.context} with the answer: lower --max-completion-length or "
                        "--examples"
                    )
