"""What makes it doubtful that a model learns from data what they mean: said by `shoal run` before it trains.

    doubts(config)      # ["quiz: 14 rows to train on are few: ...\\n  do: give 50 or more", ...]; empty if nothing is

Each is two lines: what is so, and the one thing to do. Nothing here loads a model.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from shoal.config.rewards import FunctionSection
from shoal.config.settings import Config
from shoal.evaluation.blind import constants
from shoal.runs.data import ENOUGH
from shoal.tasks import Tasks
from shoal.tasks.data.task import DataTask
from shoal.untrusted import printable
from shoal_extras.validation.found import Validated, mean, validate

ASKED: Final = 16
"""Questions whose answers are scored in all usual forms."""
BLIND: Final = 0.6
"""The share that answers get which ignore the question, above which a model may learn these."""


def doubts(config: Config) -> list[str]:
    """What is doubtful of the data in `config`. Raises `UserError` for data and functions that cannot be used."""
    tasks = Tasks(config.tasks)
    held_out = tasks.held_out(int(config.resolved().evaluation.questions), config.seed)
    functions = [spec for spec in config.rewards if isinstance(spec, FunctionSection)]
    verified = not config.rewards or any(spec.kind == "verifier" for spec in config.rewards)
    names = [""] if verified else [one.function for one in functions]
    found = validate(config.tasks, ASKED, config.seed, functions=functions)
    blind = constants(tasks, held_out)
    said: list[str] = []
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if isinstance(task, DataTask) and task.info.train < ENOUGH:
            rows, measured = task.info.train, len(held_out[label])
            what = f"{rows} rows to train on, {measured} to measure, are few: chance decides"
            said.append(f"{label}: {what}\n  do: give {ENOUGH} rows or more, or held_out=FILE to measure")
        if (share := blind[label] or 0.0) >= BLIND:
            what = f"one answer to all questions is right for {share:.0%} of them"
            said.append(f"{label}: {what}\n  do: balance the answers, or a model may learn this one alone")
        if wrong := found[label].wrong:
            such = repr(printable(wrong[0]["answer"], 20))
            what = f"{len(wrong)} of {found[label].answered} right answers earn less than 1, such as {such}"
            said.append(
                f"{label}: {what}\n  do: correct the rows, or say how to score them (`shoal validate` shows more)"
            )
        said += [f"{label}: {what}" for what in _earning(found[label], names)][:1]
    return said


def _earning(found: Validated, functions: Sequence[str]) -> Iterator[str]:
    """Wrong forms that earn, by `functions`; an empty name: by the verifier."""
    certain = [(name, form) for name, form in found.forms.items() if form.certain and form.expected == 0]
    for name, form in certain:
        for function in functions:
            gets = mean(form.rewards.get(function, ()) if function else form.scores)
            full = mean(found.forms["bare"].rewards.get(function, ())) if function else 1.0
            if gets is not None and full and gets >= full / 2:
                what = f"a wrong form earns {gets:.2g}{f' by {function}' if function else ''}: {name}"
                such = repr(printable(form.example, 20))
                yield f"{what}, such as {such}\n  do: correct the scorer (`shoal validate` shows all forms)"
