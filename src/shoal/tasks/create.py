"""Makes a task from its specification.

task = create_task(TaskSpec(name="chain_sum", parameters={"max_terms": 3}))
question = task.question(seed=7, index=0)
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, Final

from shoal.config.data import DATA
from shoal.config.own_code import call_offered, offered, task_maker
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError, in_brief
from shoal.protocols import Environment, Stages
from shoal.tasks.data.task import data_task
from shoal.tasks.environments.guess import Guess
from shoal.tasks.environments.lookup import Lookup
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.environments.textarena import TextArena
from shoal.tasks.environments.tools import Tools
from shoal.tasks.larger import Larger
from shoal.tasks.task import Task

GROUP: Final = "shoal.tasks"
"""Entry points of other packages: a task's name, and what makes it from its parameters."""
SETS: Final = "shoal.tasksets"
"""The same for names such as `verifiers:MODULE`: what makes the task from the rest, by what stands before the colon."""
STAGES: Final = "shoal.stages"
"""What makes the questions about peers' answers, `stages`."""


def _environment(make: Callable[..., Environment], **parameters: Any) -> Task:
    return EnvironmentTask(make, parameters)


ENVIRONMENTS: Final[dict[str, Callable[..., Environment]]] = {
    Guess.name: Guess,
    Lookup.name: Lookup,
    "textarena": TextArena,
}
"""Environments of shoal's own."""
CORE: Final[dict[str, Callable[..., Task]]] = {
    Larger.name: Larger,
    DATA: data_task,
    **{name: functools.partial(_environment, make) for name, make in ENVIRONMENTS.items()},
}
"""Tasks of the core, by their names. No task of reasoning-gym is called so."""


def is_of_reasoning_gym(name: str) -> bool:
    """Whether a task of this name, if there is one, is reasoning-gym's."""
    return not (":" in name or name in CORE or name in offered(GROUP))


def is_taskset(name: str) -> bool:
    """Whether this names a task of a set that another package reads, such as `verifiers:MODULE`."""
    return name.partition(":")[0] in offered(SETS) and ":" in name


def create_task(spec: TaskSpec) -> Task:
    """The task that `spec` names: one of reasoning-gym's, of the core's or of an installed package's, a taskset
    (`verifiers:MODULE`), or `module:attribute` (a task or an environment, shoal's or of TRL's shape) with the
    parameters.

    Raises `UserError` if there is no such task or if it refuses its parameters.
    """
    if is_of_reasoning_gym(spec.name):
        # reasoning-gym takes more than a second to import: only what makes questions pays for it.
        from shoal.tasks.reasoning import ReasoningTask

        return ReasoningTask(spec.name, spec.parameters)
    make = CORE.get(spec.name) or _maker(spec.name)
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
    if name in offered(GROUP):
        return functools.partial(call_offered, GROUP, name)
    if is_taskset(name):
        return functools.partial(call_offered, SETS, *name.split(":", 1))
    make, kind = task_maker(name)
    if kind == "task":
        return make
    return functools.partial(_environment, make if kind == "environment" else functools.partial(Tools, make))


def create_stages(names: Sequence[str], node: str) -> Stages | None:
    """The stages of a node; None if it asks no such questions. Raises `UserError` if no package offers them."""
    if not names:
        return None
    if "stages" not in offered(STAGES):
        raise UserError("tasks.stages needs a package that offers them: pip install shoal")
    made: Stages = call_offered(STAGES, "stages", names, node)
    return made
