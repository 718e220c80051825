"""What a run would take: memory, estimated from the sizes of its models, and time, from a short trial of each.

policy = trial_policy(config, "guppy")
model = measure(config, policy, "guppy", Tasks(config.tasks))
workers = expected_workers(config)
memory = estimate([(model.sizes, model.work)], program_bytes(config), workers)    # bytes, by what takes them
speed = try_out(config, policy, tasks)                                            # changes the model
expected_seconds(config, {"guppy": speed}, workers)
"""

import gc
import importlib
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import psutil

from shoal.config.policy import GUPPY, is_endpoint
from shoal.config.settings import Config
from shoal.learn.activations import checkpoint_above
from shoal.learn.batch import Trained, make_rows, micro_batches, row_families
from shoal.learn.learner import token_budget
from shoal.learn.memory import Sizes, Work, estimate
from shoal.parallel.ranks import ALONE
from shoal.policy.decoders.own import CACHE_BYTES
from shoal.policy.device import place
from shoal.policy.families import kept_tokens
from shoal.policy.language import LanguagePolicy
from shoal.policy.products import uses_onednn
from shoal.rollout import Completion, FinishReason, Question, Rollout, Scored
from shoal.runs.curves import draw_curves
from shoal.runs.machine import expected_workers
from shoal.runs.models import make_learner, make_policies
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

MARGIN: Final = 1.15
"""A run fits if this times its expected peak is free: the estimate may be off by that much."""
COMPILED: Final = 140_000_000
"""What oneDNN's code for products of all shapes takes, once its cache is full: measured with guppy on Linux."""
ROUNDS: Final = 8
"""Rounds whose questions are looked at for their lengths."""
SHORTEST: Final = 8
"""Tokens of each answer in a trial, at least."""
TRIAL_SECONDS: Final = 4.0
"""Answering in a trial takes about this long, at most, unless the shortest answers take longer."""


@dataclass(frozen=True)
class Model:
    """One model of a run: its sizes, and the work of the nodes that have it."""

    name: str
    sizes: Sizes
    work: Work


@dataclass(frozen=True)
class Speed:
    """What a trial measured for one node. Seconds are upper bounds: answers that were cut short count in full."""

    decode: float
    """Tokens a second while answering."""
    update: float
    """Tokens a second in an update, prompts among them."""
    answering: float
    """Seconds in a round."""
    learning: float
    """Seconds in a round."""
    evaluating: float
    """Seconds in an evaluation."""


def local_models(config: Config) -> list[str]:
    """The models that run in this process: endpoints do not."""
    return [name for name in dict.fromkeys(config.policy.model) if not is_endpoint(name)]


def nodes_of(config: Config, name: str, nodes: int | None = None) -> int:
    """How many of the first `nodes` nodes (None: of all) have the model `name`."""
    models = config.policy.model
    return sum(models[place % len(models)] == name for place in range(nodes or config.round.nodes))


def trial_policy(config: Config, name: str) -> LanguagePolicy:
    """A policy as a node of the run has it, with the adapters that it would train. Raises `UserError`."""
    placement = place(config.policy.device, config.policy.dtype)
    [policy] = make_policies(config, {"node-1": name}, None, placement, ALONE, lambda text: None)
    assert isinstance(policy, LanguagePolicy)
    policy.replayer = Verifier(config.tasks)  # whose process ends with this one
    return policy


def measure(config: Config, policy: LanguagePolicy, name: str, tasks: Tasks) -> Model:
    """Counts what the run's first questions need, with answers as long as they may get."""
    round, evaluation, learner = config.round, config.evaluation, config.learner
    device, generations = policy.placement.device, config.policy.num_generations
    budget = token_budget(policy.lm.model)
    length = policy.sampling.max_completion_length
    answers = [Trained([0] * length, 0.0, 0.0, 0)] * generations
    asks, learns = int(round.questions_per_round), round.local + round.peers
    keys = [(config.seed, "node-1", round + 1) for round in range(ROUNDS)]
    drawn = [[q for q in tasks.draw(max(asks, learns), *key) if q.prompt and policy.has_room(q)] for key in keys]
    passes: set[tuple[int, int, int, int]] = set()
    for questions in drawn:
        rows = [
            row for question in questions[:learns] for row in make_rows(policy.prompt_ids(question), answers, budget)
        ]
        for family in row_families(rows):
            for b in micro_batches(family.rows, budget, device, family.shared):
                R, S = b.input_ids_RS.shape
                passes.add((R, S, b.shared, len(b.targets_T)))
    by_task = tasks.held_out(int(evaluation.questions), config.seed)
    held_out = [q for group in by_task.values() for q in group if policy.has_room(q)]
    asked = [(questions[:asks], generations) for questions in drawn] + [(held_out, int(evaluation.samples))]
    work = Work(
        nodes=nodes_of(config, name),
        optim=learner.optim,
        reference=learner.beta > 0,
        checkpoint_above=checkpoint_above(policy.lm.model, policy.placement, budget),
        passes=sorted(passes),
        decoded=[(len(qs), kept_tokens([policy.prompt_ids(q) for q in qs]), each) for qs, each in asked if qs],
        completion_length=length,
        cache_limit=CACHE_BYTES,
    )
    return Model(name, Sizes.of(policy.lm.model, policy.placement), work)


def expected_memory(config: Config) -> dict[str, int]:
    """Bytes at the peak of a run, by what takes them, without a trial of its models."""
    config = config.resolved()
    workers, program, tasks = expected_workers(config), program_bytes(config), Tasks(config.tasks)
    models = [measure(config, trial_policy(config, name), name, tasks) for name in local_models(config)]
    return estimate([(model.sizes, model.work) for model in models], program, workers)


def program_bytes(config: Config) -> int:
    """Bytes of the process without models, measured after all of it has run once. 0 on a GPU, whose memory is what
    runs out there."""
    if place(config.policy.device).device.type == "cuda":
        return 0
    importlib.import_module("pyarrow.parquet")  # the run's folder needs it
    small = Config.model_validate({"policy": {"model": [GUPPY], "device": config.policy.device}}).resolved()
    try_out(small, trial_policy(small, GUPPY), Tasks(small.tasks), seconds=0)
    with tempfile.TemporaryDirectory() as folder:
        draw_curves([{"round": 1, "node": "node-1", "eval/pass@1": 0.5}], Path(folder) / "curves.png", "")
    gc.collect()
    return resident_bytes() + (COMPILED if uses_onednn(place(config.policy.device, config.policy.dtype)) else 0)


def resident_bytes() -> int:
    """The memory that this process has now."""
    return int(psutil.Process().memory_info().rss)


def try_out(config: Config, policy: LanguagePolicy, tasks: Tasks, seconds: float = TRIAL_SECONDS) -> Speed:
    """Answers the questions of a round and of an evaluation, with as many tokens as `seconds` allow for each, and
    learns once. This changes `policy`."""
    full, generations = policy.sampling.max_completion_length, max(2, config.policy.num_generations)
    asks, local = int(config.round.questions_per_round), max(1, config.round.local)
    drawn = [q for q in tasks.draw(max(asks, local), config.seed, "node-1", 1) if q.prompt]
    questions = [q for q in drawn if policy.has_room(q)] or drawn  # if all are too long, `generate` says so
    held_out = [q for group in tasks.held_out(int(config.evaluation.questions), config.seed).values() for q in group]
    samples = int(config.evaluation.samples)

    def answer(asked: Sequence[Question], each: int, tokens: int) -> tuple[list[tuple[Completion, ...]], float, float]:
        """The answers with at most so many tokens, the seconds, and those if what was cut went on to `full`."""
        policy.sampling = replace(policy.sampling, max_completion_length=min(full, tokens))
        start = time.perf_counter()
        groups = policy.generate(asked, each, config.seed)
        taken = time.perf_counter() - start
        lengths = [(len(c.token_ids or ()), c.finish_reason == FinishReason.length) for group in groups for c in group]
        made = sum(length for length, _ in lengths)
        whole = sum(full if cut else length for length, cut in lengths)
        return groups, taken, taken * whole / max(1, made)

    answer(questions, generations, SHORTEST)  # to warm up
    _, taken, _ = answer(questions, generations, SHORTEST)
    affordable = seconds * SHORTEST / taken
    more = len(held_out) * samples / (len(questions) * generations)
    _, _, evaluating = answer(held_out, samples, max(SHORTEST, round(affordable / max(1.0, more))))
    groups, taken, answering = answer(questions, generations, max(SHORTEST, round(affordable)))
    rollouts = [
        Scored(Rollout(q.id, q.hash, group, "node-1", 0), q, tuple(float(i % 2) for i in range(len(group))))
        for q, group in zip(questions[:local], groups, strict=False)
    ]
    learner = make_learner(config, policy)
    start = time.perf_counter()
    learner.update(rollouts)
    updating = time.perf_counter() - start
    tokens = sum(len(c.token_ids or ()) for group in groups for c in group)
    learned = [completion for rollout in rollouts for completion in rollout.rollout.completions]
    read = sum(len(c.token_ids or ()) for c in learned) + sum(len(policy.prompt_ids(r.question)) for r in rollouts)
    learning = updating * (1 + config.round.peers / len(rollouts)) * answering / taken
    return Speed(tokens / taken, read / updating, answering, learning, evaluating)


def expected_seconds(config: Config, speeds: Mapping[str, Speed], workers: int) -> dict[str, float]:
    """Seconds, at most, of a round's parts, of an evaluation and of the run, from the `speeds` of its models. Scoring
    and endpoints are not in it."""
    models = config.policy.model
    nodes = [speeds.get(models[place % len(models)]) for place in range(config.round.nodes)]
    processes = max(1, workers)  # which take turns when they are given nodes; a round waits for the slowest
    times = {
        part: max(sum(getattr(speed, part) for speed in nodes[first::processes] if speed) for first in range(processes))
        for part in ("answering", "learning", "evaluating")
    }
    every = config.evaluation.every
    evaluations = 2 + (max(0, config.rounds - 1) // every if every else 0)
    total = config.rounds * (times["answering"] + times["learning"]) + evaluations * times["evaluating"]
    return times | {"evaluations": evaluations, "run": total}


Change = dict[str, Any]
"""Settings by their dotted names."""


def advise(config: Config, models: Sequence[Model], program: int, free: int, workers: int) -> list[Change]:
    """Changes of settings with which the run fits into `free` bytes: up to three that do by themselves, those that
    change least first; else one change of several settings together. Empty if nothing helps."""

    def fits(change: Change) -> bool:
        processes = min(change.get("round.workers", workers), change.get("round.nodes", workers))
        return MARGIN * sum(estimate(changed(config, models, change), program, processes).values()) <= free

    choices: dict[str, list[Any]] = {
        "round.workers": [0] if workers else [],
        "learner.optim": ["adafactor"] if config.learner.optim.startswith("adamw") else [],
        "policy.lora_r": [] if config.policy.lora_r else [16],
        "round.nodes": list(range(config.round.nodes - 1, 0, -1)),
    }
    alone = [next(({name: v} for v in values if fits({name: v})), None) for name, values in choices.items()]
    if found := [change for change in alone if change]:
        return found[:3]
    together: Change = {}
    for name, values in choices.items():
        for value in values:
            together[name] = value
            if fits(together):
                return [together]
    return []


def changed(config: Config, models: Sequence[Model], change: Change) -> list[tuple[Sizes, Work]]:
    """The models with other settings. With fewer nodes, the first ones are left."""
    found = []
    for model in models:
        sizes, work = model.sizes, model.work
        if "policy.lora_r" in change:
            sizes = sizes.with_adapters(change["policy.lora_r"])
        nodes = nodes_of(config, model.name, change.get("round.nodes"))
        if nodes:
            found.append((sizes, replace(work, nodes=nodes, optim=change.get("learner.optim", work.optim))))
    return found
