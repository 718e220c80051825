"""What a run's data are taken for, and what is wrong with them, before torch is imported and any model is loaded.

    check_data(config, trains=True)
    data_lines(Tasks(config.tasks))         # ["quiz: 150 rows, scored by number; ...", '  "1 km in m?" -> 1000', ...]

Nothing here imports torch: a command says within a second what is wrong with a file.
"""

from typing import Final

from shoal.config.settings import Config
from shoal.config.tasks import DATA
from shoal.errors import UserError
from shoal.tasks import Tasks
from shoal.tasks.data.task import DataTask
from shoal.untrusted import printable

ENOUGH: Final = 50
"""Rows from which a small model learns something that a few held-out questions show."""
SHOWN, QUOTED, LONGEST = 3, 100, 10_000
"""Rows of a data set that are shown, characters of each text, and characters that are looked at."""


def check_data(config: Config, trains: bool) -> None:
    """Raises `UserError` for data sets that cannot be read, and for ones with nothing to reward, to train on or to hold
    out. `trains`: whether anything is to be learned from them."""
    if not has_data(config):
        return
    tasks = Tasks(config.tasks)
    held_out = tasks.held_out(1, config.seed)
    rewarded = any(spec.kind != "verifier" for spec in config.rewards)
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if not isinstance(task, DataTask):
            continue
        info = task.info
        if not info.answer and not (trains and rewarded):
            reward = "add --reward my.py:function, or " if trains else ""
            raise UserError(
                f"the data set {label!r} has no right answers (a column 'answer' or 'solution'): {reward}say --data "
                "'...,answer=COLUMN'"
            )
        if trains and not info.train:
            raise UserError(
                f"the data set {label!r} has held-out rows only, and none to train on: use it with "
                "`shoal eval`, or set split = NAME"
            )
        few = f"the data set {label!r} has {info.train:,} row{'s' * (info.train != 1)} to train on"
        if trains:
            try:
                tasks.first(label, 0)
            except UserError as error:
                raise UserError(f"{few}, which are too few or too alike: give {ENOUGH} or more") from error
        if info.answer and not held_out[label]:
            raise UserError(
                f"{few}, and none is kept back to measure what is learned: give {ENOUGH} or more, or say held_out=FILE"
            )


def has_data(config: Config) -> bool:
    """Whether a data set is among the tasks."""
    return any(spec.name == DATA for spec in config.tasks.sources)


def data_lines(tasks: Tasks) -> list[str]:
    """A line on each data set, and some of its questions with their right answers as they are read."""
    lines: list[str] = []
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if not isinstance(task, DataTask):
            continue
        lines.append(f"{label}: {task.description}")
        for asked in task.shown(SHOWN):
            asks, right = (printable(" ".join(text.split()), LONGEST) for text in asked)
            if len(asks) > QUOTED:  # what is asked, and the options, often come last
                asks = f"{asks[: QUOTED // 2]} … {asks[-QUOTED // 2 :]}"
            lines.append(f"  {asks} -> {printable(right, QUOTED) or '(no right answer)'}")
    return lines
