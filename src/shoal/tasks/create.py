"""Makes a task from its specification.

task = create_task(TaskSpec(name="chain_sum", parameters={"max_terms": 3}))
question = task.question(seed=7, index=0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Final

from shoal.config.data import DATA
from shoal.config.own_code import task_maker
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError, in_brief
from shoal.protocols import Environment
from shoal.tasks.data.task import data_task
from shoal.tasks.environments.guess import Guess
from shoal.tasks.environments.lookup import Lookup
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.environments.textarena import TextArena
from shoal.tasks.environments.tools import Tools
from shoal.tasks.larger import Larger
from shoal.tasks.task import Task
from shoal_extras.pictures.questions import PICTURE_TASKS
from shoal_extras.programs.infer import Infer
from shoal_extras.programs.proposals import PROPOSE
from shoal_extras.programs.propose import Propose
from shoal_extras.programs.questions import Programs
from shoal_extras.verifiers.task import PREFIX, taskset_task


def _drawings(**parameters: Any) -> Task:
    from shoal_extras.drawings.task import Drawings  # numpy: only what makes drawings pays for it

    return Drawings(**parameters)


def _environment(make: Callable[..., Environment], **parameters: Any) -> Task:
    return EnvironmentTask(make, parameters)


ENVIRONMENTS: Final[dict[str, Callable[..., Environment]]] = {
    Guess.name: Guess,
    Lookup.name: Lookup,
    "textarena": TextArena,
}
"""Environments of shoal's own."""
OWN: Final[dict[str, Callable[..., Task]]] = {
    "larger": Larger,
    "programs": Programs,
    PROPOSE: Propose,
    "infer": Infer,
    "drawings": _drawings,
    DATA: data_task,
    **PICTURE_TASKS,
    **{name: functools.partial(_environment, make) for name, make in ENVIRONMENTS.items()},
}
"""Tasks of shoal's own, by their names. No task of reasoning-gym is called so."""


def create_task(spec: TaskSpec) -> Task:
    """The task that `spec` names: one of reasoning-gym's, one of `OWN`, a taskset of verifiers (`verifiers:MODULE`), or
    `module:attribute` (a task or an environment, shoal's or of TRL's shape) with the parameters.

    Raises `UserError` if there is no such task or if it refuses its parameters.
    """
    if ":" not in spec.name and spec.name not in OWN:
        # reasoning-gym takes more than a second to import: only what makes questions pays for it.
        from shoal.tasks.reasoning import ReasoningTask

        return ReasoningTask(spec.name, spec.parameters)
    make = OWN.get(spec.name) or _maker(spec.name)
    try:
        task = make(**spec.parameters)
    except UserError:
        raise
    except Exception as error:  # own code raises whatever it does
        told = isinstance(error, TypeError | ValueError | AssertionError)
        raise UserError(f"task {spec.name!r}: {error if told else in_brief(error)}") from error
    if not isinstance(task, Task):
        raise UserError(f"task {spec.name!r} is not a task: see shoal.tasks.Task for what it must have")
    if isinstance(task, EnvironmentTask) and spec.form:
        raise UserError(f"task {spec.name!r} answers back: it reads whole turns, so leave `answer` and `examples` out")
    return task


def _maker(name: str) -> Callable[..., Task]:
    if name.startswith(PREFIX):
        return functools.partial(taskset_task, name.removeprefix(PREFIX))
    make, kind = task_maker(name)
    if kind == "task":
        return make
    return functools.partial(_environment, make if kind == "environment" else functools.partial(Tools, make))
