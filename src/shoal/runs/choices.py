"""What a run's `auto` settings become, chosen from its models, its tasks and this machine, with a line on each.

    config, lines = choose(config)
    lines[0]              # "answers        at most 24 tokens: right answers have at most 2 characters (...)"

`Config.resolved` knows only the settings themselves; this also looks at the tasks' right answers and at the load. A
run keeps what was chosen in its `config.toml`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from shoal.config.policy import is_endpoint
from shoal.config.settings import Config
from shoal.config.tasks import EASY, TaskSpec
from shoal.parallel.ranks import ALONE, Ranks
from shoal.runs.cores import busy_cores, usable_cores
from shoal.runs.models import count_workers, number, place_rank
from shoal.tasks import Answered, Task, Tasks

REASONING: Final = 256
"""Tokens for an answer that thinks before it says what is right."""
UNKNOWN: Final = 64
"""Tokens for answers to a task that does not tell its right ones."""
LOOKED_AT: Final = 64
"""Questions of a task whose right answers are looked at."""
ROOM: Final = 16
"""Tokens beside a right answer: nothing is learned from answers that are all cut before they are right."""
MARKS: Final = 16
"""Tokens of <answer> </answer>, or of a box."""


def choose(config: Config, ranks: Ranks = ALONE) -> tuple[Config, list[str]]:
    """`config` with its choices made, and a line on each. What the user gave stays. Raises `UserError` for tasks that
    cannot be made."""
    chosen = config.model_copy(deep=True)
    lines: dict[str, str] = {}
    if config.policy.max_completion_length == "auto" and config.tasks.tasks:
        tasks = Tasks(config.tasks)
        chosen.policy.max_completion_length, why = longest_answer(tasks.tasks, tasks.specs)
    else:
        why = "the tasks ask for reasoning" if config.tasks.suite not in EASY else f"as {config.tasks.suite} needs"
    if config.threads == 0:
        chosen.threads, lines["threads"] = choose_threads(config, ranks)
    chosen = chosen.resolved()
    if config.policy.max_completion_length == "auto":
        lines["answers"] = f"at most {chosen.policy.max_completion_length} tokens: {why} (--max-completion-length)"
    if config.learner.learning_rate == "auto" and chosen.learner.learning_rate != "auto":
        kind = "adapters" if config.policy.lora_r else "all weights"
        lines["learning rate"] = f"{chosen.learner.learning_rate:g}, for {kind} of this model (--learning-rate)"
    if config.learner.optim == "auto" and chosen.learner.optim != "adamw":
        lines["optimizer"] = f"{chosen.learner.optim}, which saves memory (--optim)"
    if "auto" in (config.evaluation.questions, config.evaluation.samples):
        questions = number(chosen.evaluation.questions)
        lines["held-out"] = (
            f"{questions} questions of each task, {number(chosen.evaluation.samples)} answers to each "
            "(--eval-questions, --eval-samples)"
        )
    if config.checkpoint_every == "auto":
        lines["checkpoints"] = "at the end, and before as often as 5 % of the time allows (--checkpoint-every)"
    return chosen, [f"{name:15}{text}" for name, text in sorted(lines.items())]


def longest_answer(tasks: Sequence[Task], specs: Sequence[TaskSpec]) -> tuple[int, str]:
    """The longest completion that tasks of one's own need, in tokens, and why."""
    if any(spec.answer != "whole" and spec.system_prompt and not spec.examples for spec in specs):
        return REASONING, "a system prompt may ask for reasoning"
    right = [
        answer
        for task in tasks
        if isinstance(task, Answered)
        for index in range(LOOKED_AT)
        if (answer := task.answer(task.question(0, index).id)) is not None
    ]
    if not right or not all(isinstance(task, Answered) for task in tasks):
        return UNKNOWN, "the tasks do not tell their right answers"
    longest = max(len(answer.encode()) for answer in right)  # a token is at least a byte
    marks = MARKS * any(spec.answer in ("tag", "boxed") for spec in specs)
    tokens = -(-(longest + marks + ROOM) // 8) * 8
    return min(REASONING, tokens), f"right answers have at most {longest} characters"


def choose_threads(config: Config, ranks: Ranks = ALONE) -> tuple[int, str]:
    """The threads that this process, or each of its workers, computes with, and a line about them."""
    cores, busy = usable_cores(), busy_cores()
    models = config.policy.model
    learning = {f"node-{n + 1}": models[n % len(models)] for n in range(config.swarm.nodes)}
    learning = {name: model for name, model in learning.items() if not is_endpoint(model)}
    workers = count_workers(config, learning, place_rank(config, ranks), ranks, joined=False)
    if workers:  # each has one thread or more, and they share cores with others fairly
        threads = max(1, cores // workers)
        return threads, f"{threads} in each of {workers} processes, on {cores} cores (--threads)"
    free = max(1, round(cores - busy))
    why = f": other programs keep {busy:.1f} busy" if free < cores else ""
    return max(1, free // ranks.local_size), f"{free} for {cores} cores{why} (--threads)"
