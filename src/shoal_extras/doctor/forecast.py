"""What a run would take: memory, and how fast it is, from a short trial of each model in a process of its own.

trials = [try_apart(config, name) for name in config.local_models]
expected_peak(config, trials, workers)                    # bytes
"""

from __future__ import annotations

import multiprocessing
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import torch

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.learn.learner import GRPOLearner
from shoal.parallel.ranks import ALONE
from shoal.policy.decoders.base import OWN, ordinary_tokens
from shoal.policy.decoders.own import CACHE_BYTES, OwnDecoder, cache_bytes_per_token
from shoal.policy.device import Placement, place
from shoal.policy.families import kept_tokens
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import display_name
from shoal.rollout import Completion, FinishReason, Part, Question, Rollout, Scored
from shoal.runs.machine import use_threads
from shoal.runs.models import make_policies
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks

GROWTH: Final = 1.1
"""What a run takes in the end, to what a trial shows: malloc holds more."""
OTHERS: Final = 250_000_000
"""Bytes that a process of a run takes beside that: for tables and charts, and what oneDNN has compiled in the end."""
MARGIN: Final = 1.15
"""A run fits if this times its expected peak is free: the estimate may be off by that much."""
ROUNDS: Final = 8
"""Rounds among whose questions the longest are sought."""
SHORTEST: Final = 8
"""Tokens of each answer in a trial, at least."""
TRIAL_SECONDS: Final = 4.0
"""Answering in a trial takes about this long, at most, unless the shortest answers take longer."""


@dataclass(frozen=True)
class Trial:
    """What a trial measured for one node."""

    model: str
    parameters: int
    trained: int
    """All parameters, or those of the adapters."""
    lasting: int
    """Bytes that each node keeps: trained weights, the optimizer's state."""
    peak: int
    """Bytes of the process, or of the GPU, at the worst moment, with all of that."""
    decode: float
    """Tokens a second while answering."""
    update: float
    """Tokens a second in an update, prompts among them."""


def try_apart(config: Config, name: str) -> Trial:
    """A trial of the model `name`, in a process of its own: its peak is that of nothing else, and where memory runs
    out, it is what ends. Raises `UserError`."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn"), _die_first) as process:
        try:
            return process.submit(try_out, config, name).result()
        except BrokenProcessPool:
            raise UserError(
                f"the trial of '{display_name(name)}' was killed, probably as memory ran out: take a smaller model, "
                "--lora-r 16 or --optim adafactor"
            ) from None


def _die_first() -> None:
    """Where memory runs out, Linux ends the process of the highest score."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def try_out(config: Config, name: str) -> Trial:
    """Answers questions of a round and of an evaluation, for some seconds; learns from the answers, and then from the
    longest ones that there may be."""
    use_threads(config)
    placement = place(config.policy.device, config.policy.dtype)
    policy, tasks = trial_policy(config, name), Tasks(config.tasks)
    full, generations = policy.sampling.max_completion_length, max(2, config.policy.num_generations)
    asks, local = int(config.round.questions_per_round), max(1, config.round.local)
    drawn = [q for q in tasks.draw(max(asks, local), config.seed, "node-1", 1) if q.prompt]
    questions = [q for q in drawn if policy.has_room(q)] or drawn  # if all are too long, `generate` says so
    by_task = tasks.held_out(int(config.evaluation.questions), config.seed)
    held_out = [q for group in by_task.values() for q in group if policy.has_room(q)]
    samples = int(config.evaluation.samples)

    def answer(asked: Sequence[Question], each: int, tokens: int) -> tuple[list[tuple[Completion, ...]], float]:
        """The answers with at most so many tokens, and the seconds that they took."""
        policy.sampling = replace(policy.sampling, max_completion_length=min(full, tokens))
        start = time.perf_counter()
        return policy.generate(asked, each, config.seed), time.perf_counter() - start

    answer(questions, generations, SHORTEST)  # to warm up
    _, taken = answer(questions, generations, SHORTEST)
    answer(held_out, samples, SHORTEST)
    groups, taken = answer(questions, generations, max(SHORTEST, round(TRIAL_SECONDS * SHORTEST / taken)))
    answered = peak_bytes(placement)
    if config.policy.engine == OWN:
        each = [(questions, generations), (held_out, samples)]
        answered += max(_cache_bytes(policy, asked, count * full) for asked, count in each)
    policy.sampling = replace(policy.sampling, max_completion_length=full)
    learner = GRPOLearner(policy, config.learner, config.peers)
    rollouts = [half_right(q, group) for q, group in zip(questions[:local], groups, strict=False)]
    start = time.perf_counter()
    learner.update(rollouts)
    updating = time.perf_counter() - start
    learner.update(longest_answers(config, policy, tasks, learner.token_budget))
    trained = [weight for weight in learner.model.parameters() if weight.requires_grad]
    states = (v for state in learner.optimizer.state.values() for v in state.values() if isinstance(v, torch.Tensor))
    beside = sum(tensor.nbytes for tensor in states)
    tokens = sum(len(c.token_ids or ()) for group in groups for c in group)
    learned = [completion for rollout in rollouts for completion in rollout.rollout.completions]
    read = sum(len(c.token_ids or ()) for c in learned) + sum(len(policy.prompt_ids(r.question)) for r in rollouts)
    return Trial(
        model=name,
        parameters=learner.model.num_parameters(),
        trained=sum(weight.numel() for weight in trained),
        lasting=sum(weight.nbytes for weight in trained) + beside,
        peak=max(peak_bytes(placement), answered + beside),  # later rounds answer with the optimizer's state
        decode=tokens / taken,
        update=read / updating,
    )


def trial_policy(config: Config, name: str) -> LanguagePolicy:
    """A policy as a node of the run has it, with the adapters that it would train. Raises `UserError`."""
    placement = place(config.policy.device, config.policy.dtype)
    [policy] = make_policies(config, {"node-1": name}, None, placement, ALONE, lambda text: None)
    assert isinstance(policy, LanguagePolicy)
    policy.replayer = Verifier(config.tasks)  # whose process ends with this one
    return policy


def longest_answers(config: Config, policy: LanguagePolicy, tasks: Tasks, budget: int) -> list[Scored]:
    """Invented answers of full length to the longest questions of some rounds, enough to fill two passes."""
    asks = max(int(config.round.questions_per_round), config.round.local)
    drawn = [q for round in range(ROUNDS) for q in tasks.draw(asks, config.seed, "node-1", round + 1)]
    questions = sorted((q for q in drawn if q.prompt and policy.has_room(q)), key=lambda q: -len(policy.prompt_ids(q)))
    length, generations = policy.sampling.max_completion_length, max(2, config.policy.num_generations)
    token = ordinary_tokens(policy.lm.model)[0]
    answer = Completion((Part(""),), FinishReason.length, (token,) * length, (0.0,) * length)
    most = min(config.round.local + config.round.peers, 1 + 2 * budget // (length * generations))
    return [half_right(question, (answer,) * generations) for question in questions[: max(1, most)]]


def half_right(question: Question, answers: tuple[Completion, ...]) -> Scored:
    """Every other answer is right."""
    rollout = Rollout(question.id, question.hash, answers, "node-1", 0)
    return Scored(rollout, question, tuple(float(number % 2) for number in range(len(answers))))


def _cache_bytes(policy: LanguagePolicy, questions: Sequence[Question], tokens: int) -> int:
    """Keys and values while `questions` are answered with so many `tokens` each."""
    if not isinstance(policy.decoder, OwnDecoder):
        return 0  # unknown
    prompts = kept_tokens([policy.prompt_ids(question) for question in questions])
    return min(CACHE_BYTES, cache_bytes_per_token(policy.lm.model) * (prompts + len(questions) * tokens))


def peak_bytes(placement: Placement) -> int:
    """The most memory that this process has had, of the device that `placement` names."""
    if placement.device.type == "cuda":
        return torch.cuda.max_memory_allocated(placement.device)
    if sys.platform == "linux":  # where `ru_maxrss` would begin with the peak of the parent
        [line] = [one for one in Path("/proc/self/status").read_text().splitlines() if one.startswith("VmHWM")]
        return 1024 * int(line.split()[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def expected_peak(config: Config, trials: Sequence[Trial], workers: int) -> int:
    """Bytes at the worst moment of a run. `workers`: processes that keep the models beside this one; each may be at its
    worst moment at the same time."""
    processes, here = max(1, workers), [trial for trial in trials if nodes_of(config, trial.model)]
    total = working = 0
    for trial in here:
        nodes, frozen = nodes_of(config, trial.model), 4 * (trial.parameters - trial.trained)
        total += nodes * trial.lasting + min(processes, nodes) * frozen  # all nodes of a process share what is frozen
        working = max(working, trial.peak - trial.lasting - frozen)
    return round(GROWTH * (total + processes * working) + processes * OTHERS)


def nodes_of(config: Config, name: str) -> int:
    """How many nodes have the model `name`."""
    return list(config.node_models.values()).count(name)
