"""Reads the data sets of a run into the cache, and says before anything is loaded what cannot be done with them.

check_data(config, trains=True)
"""

from __future__ import annotations

from shoal.config.data import DATA
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.tasks import Tasks
from shoal.tasks.data.task import DataTask


def check_data(config: Config, trains: bool) -> None:
    """Raises `UserError` for data sets that cannot be read, and for ones with nothing to reward, to train on or to hold
    out. `trains`: whether anything is to be learned from them."""
    if all(spec.name != DATA for spec in config.tasks.tasks):
        return
    tasks = Tasks(config.tasks)
    held_out = tasks.held_out(1, config.seed)
    rewarded = any(spec.kind != "verifier" for spec in config.rewards)
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if not isinstance(task, DataTask):
            continue
        info = task.info
        if not info.answer and not (trains and rewarded):
            raise UserError(
                f"the data set {label!r} has no right answers (a column 'answer' or 'solution'): "
                + ("add --reward my.py:function, or say answer = COLUMN" if trains else "say answer = COLUMN")
            )
        if trains and not info.train:
            raise UserError(
                f"the data set {label!r} is there to measure with, and has nothing to train on: use it with "
                "`shoal eval`, or say split = NAME"
            )
        if trains:
            tasks.first(label, 0)
        if info.answer and not held_out[label]:
            raise UserError(
                f"none of the {info.train:,} rows of the data set {label!r} is held out: give more rows, or say "
                "held_out = FILE"
            )


def data_lines(tasks: Tasks) -> list[str]:
    """A line on each data set."""
    return [
        _line(label, task) for label, task in zip(tasks.labels, tasks.tasks, strict=True) if isinstance(task, DataTask)
    ]


def _line(label: str, task: DataTask) -> str:
    info = task.info
    sides = f"{info.train:,} rows to train on, {info.held_out:,} held out" if info.has_split else f"{info.train:,} rows"
    left_out = f"; {info.skipped:,} rows left out: {info.first}" if info.skipped else ""
    scored = f", scored by {task.kind}" if info.answer else ", without right answers"
    return f"{label}: {sides}{scored}; its hash is {info.content[:12]}{left_out}"
