"""Reads the data sets of a run into the cache, loads its tasksets, and says before any model is loaded what cannot be
done with them.

check_data(config, trains=True)
"""

from __future__ import annotations

from shoal.config.data import DATA
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.rollout import Question
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.create import is_taskset
from shoal.tasks.data.task import DataTask
from shoal.tasks.task import Described


def check_data(config: Config, trains: bool) -> None:
    """Raises `UserError` for data sets that cannot be read, and for ones with nothing to reward, to train on or to hold
    out; and for tasksets whose rewards cannot be computed. `trains`: whether anything is to be learned from them."""
    if not has_data(config):
        return
    tasks = Tasks(config.tasks)
    held_out = tasks.held_out(1, config.seed)
    rewarded = any(spec.kind != "verifier" for spec in config.rewards)
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if not isinstance(task, DataTask):
            if isinstance(task, Described):
                _check_taskset(config, label, tasks.first(label, 0) if trains else None, held_out[label])
            continue
        info = task.info
        if not info.answer and not (trains and rewarded):
            raise UserError(
                f"the data set {label!r} has no right answers (a column 'answer' or 'solution'): "
                + (
                    "add --reward my.py:function, or say --data '...,answer=COLUMN'"
                    if trains
                    else "say --data '...,answer=COLUMN'"
                )
            )
        if trains and not info.train:
            raise UserError(
                f"the data set {label!r} has held-out rows only, and none to train on: use it with "
                "`shoal eval`, or set split = NAME"
            )
        if trains:
            tasks.first(label, 0)
        if info.answer and not held_out[label]:
            raise UserError(
                f"none of the {info.train:,} rows of the data set {label!r} is held out: give more rows, or say "
                "held_out = FILE"
            )


def has_data(config: Config) -> bool:
    """Whether a data set or a taskset is among the tasks."""
    return any(spec.name == DATA or is_taskset(spec.name) for spec in config.tasks.sources)


def data_lines(tasks: Tasks) -> list[str]:
    """A line on each data set and each taskset."""
    named = zip(tasks.labels, tasks.tasks, strict=True)
    return [f"{label}: {task.description}" for label, task in named if isinstance(task, Described)]


def _check_taskset(config: Config, label: str, first: Question | None, held_out: list[Question]) -> None:
    """Scores an answer in the sandbox, which refuses what a reward may not do."""
    if not held_out:
        raise UserError(f"no task of the taskset {label!r} is held out: it needs more of them")
    with Verifier(config.tasks) as verifier:
        verifier.score([((first or held_out[0]).id, ["0"])])
        if verifier.failures["unknown"]:
            raise UserError(f"the taskset {label!r} is refused: each process loads other tasks; give it a fixed seed")
        if verifier.failures["refused"]:
            raise UserError(
                f"the taskset {label!r} is refused: its rewards need the network, a process or files to write "
                f"({verifier.trouble})"
            )
