"""What a run's `auto` settings become, chosen from its models, its tasks and this machine, with a line on each.

    config, lines = choose(config)
    lines[0]              # "answers        at most 24 tokens: right answers of up to 2 bytes, ..."

`Config.resolved` knows only the settings themselves; this also looks at the tasks' right answers and at the load. A
run keeps what was chosen in its `config.toml`.
"""

import contextlib
from typing import Final

import torch

from shoal.config.answer_form import STRICT, in_form, is_pattern
from shoal.config.policy import GUPPY
from shoal.config.settings import Config
from shoal.config.tasks import EASY, TasksConfig
from shoal.parallel.ranks import ALONE, Ranks
from shoal.runs.data import has_data
from shoal.runs.machine import expected_workers, free_cores, parameters, usable_cores
from shoal.tasks import Tasks
from shoal.tasks.draw import QuestionFailed

REASONING: Final = 256
"""Tokens for an answer that thinks before it says what is right."""
UNKNOWN: Final = 64
"""Tokens for an answer among other text, and to a task that does not tell its right ones."""
LOOKED_AT: Final = 64
"""Questions of a task whose right answers are looked at."""
TINY: Final = 20e6
"""Parameters below which a GPU waits for its host: guppies took 1.3 s a round on an H100, 0.5 s on two cores."""
FEW: Final = 20
"""A figure of fewer held-out questions is off by some 20 points in either direction (95 %)."""
ROOM: Final = 16
"""Tokens beside a right answer: nothing is learned from answers that are all cut before they are right."""


def choose(config: Config, ranks: Ranks = ALONE) -> tuple[Config, list[str]]:
    """`config` with its choices made, and a line on each. What the user gave stays. Raises `UserError`."""
    chosen = config.model_copy(deep=True)
    lines: dict[str, str] = {}
    if GUPPY in config.policy.model and has_data(config):
        lines["model"] = "guppy, which knows the tasks of its own suites alone: --model smollm2 knows English"
    if config.policy.max_completion_length == "auto":
        length, why = choose_length(config.tasks)
        chosen.policy.max_completion_length = length
        lines["answers"] = f"at most {length} tokens: {why} (--max-completion-length)"
    has_gpu = (config.policy.device, ranks.size) == ("auto", 1) and torch.cuda.is_available()
    if has_gpu and all(parameters(model) < TINY for model in config.local_models):
        chosen.policy.device = "cpu"
        lines["device"] = "the processor, faster than a GPU for models of this size (--device cuda)"
    if config.threads == 0:
        chosen.threads, lines["threads"] = choose_threads(config, ranks)
    chosen = chosen.resolved()
    if config.learner.learning_rate == "auto" and chosen.learner.learning_rate != "auto":
        kind = "adapters" if config.policy.lora_r else "all weights"
        lines["learning rate"] = f"{chosen.learner.learning_rate:g}, for {kind} of this model (--learning-rate)"
    if "auto" in (config.evaluation.questions, config.evaluation.samples):
        samples = int(chosen.evaluation.samples)
        asked = held_out_questions(chosen)
        lines["held-out"] = f"{asked}, {samples} answer{'s' * (samples > 1)} to each (--eval-questions, --eval-samples)"
    return chosen, [f"{name:15}{text}" for name, text in sorted(lines.items())]


def held_out_questions(config: Config) -> str:
    """How many questions an evaluation asks. Of a data set it counts them: it may have fewer than are asked for."""
    wanted = int(config.evaluation.questions)
    found = Tasks(config.tasks).held_out(wanted, config.seed).values() if has_data(config) else []
    counts = {len(questions) for questions in found} or {wanted}
    least, most = min(counts), max(counts)
    each = " of each task" if len(found) != 1 else ""
    said = f"{least}{f' to {most}' if most > least else ''} question{'s' * (most != 1)}{each}"
    rough = " (few for a figure: add rows, or held_out=FILE)" if least < FEW else ""
    return f"{said}, all that there are{rough}" if most < wanted else said


def choose_length(config: TasksConfig) -> tuple[int, str]:
    """The longest completion that tasks need, in tokens, and why. Raises `UserError` for tasks that cannot be made."""
    if not config.sources and config.suite in EASY and (config.examples, config.answer) == ("task", "task"):
        return EASY[config.suite], f"{config.suite} needs no more"
    tasks = Tasks(config)
    free = [spec for spec in tasks.specs if spec.answer not in ("whole", STRICT) and not spec.examples]
    if any(spec.system_prompt for spec in free):
        return REASONING, "a system prompt may ask for reasoning"
    asked = zip(tasks.tasks, tasks.specs, strict=True)
    if any(getattr(task, "has_steps", False) and not spec.examples for task, spec in asked):
        return REASONING, "steps may come before the answer"
    right = [right_answers(tasks, label, spec.answer) for label, spec in zip(tasks.labels, tasks.specs, strict=True)]
    longest = max((len(answer.encode()) for answers in right for answer in answers), default=0)
    tokens = -(-(longest + ROOM) // 8) * 8  # a token is at least a byte
    if tokens < UNKNOWN and not all(right):
        return UNKNOWN, "not all tasks tell their right answers"
    if tokens < UNKNOWN and free:
        return UNKNOWN, "right answers may stand among other text"
    return min(REASONING, tokens), f"right answers of up to {longest} byte{'s' * (longest != 1)}, and room to spare"


def right_answers(tasks: Tasks, label: str, form: str) -> list[str]:
    """Right answers to questions of a task, with the marks that `form` asks for; none where it does not tell them."""
    known = []
    for index in range(LOOKED_AT):
        with contextlib.suppress(QuestionFailed):
            known.append(tasks.answer(tasks.made(label, 0, index).id))
    return [answer if is_pattern(form) else in_form(answer, form) for answer in known if answer is not None]


def choose_threads(config: Config, ranks: Ranks = ALONE) -> tuple[int, str]:
    """The threads that this process, or each of its workers, computes with, and a line about them."""
    cores = usable_cores()
    workers = expected_workers(config.resolved(), ranks)  # as the run will have it: the optimizer takes memory
    processes = workers or ranks.local_size
    free = cores if workers else free_cores()  # processes share cores with others fairly, threads wait for each other
    threads = max(1, free // processes)
    each = f" in each of {processes} processes" if processes > 1 else ""
    why = ", as other programs keep the rest busy" if free < cores else ""
    return threads, f"{threads}{each} on {cores} cores{why} (--threads)"
