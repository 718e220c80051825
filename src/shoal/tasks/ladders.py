"""A ladder: a task in several levels of difficulty. Each level is a task of its own.

    [(task, spec), (harder, its_spec)] = create_levels(TaskSpec(name="chain_sum", levels=2))
    spec.parameters          # {"min_terms": 2, "max_terms": 2, "min_digits": 1, "max_digits": 1}

`selection.levels` chooses from which level a node draws.
"""

from __future__ import annotations

from shoal.config.tasks import TaskSpec
from shoal.errors import UserError
from shoal.tasks.create import create_task, is_of_reasoning_gym
from shoal.tasks.task import Task


def create_levels(spec: TaskSpec) -> list[tuple[Task, TaskSpec]]:
    """The task of each level with its specification, the easiest first; the one task of a `spec` without levels.

    Raises `UserError` as `create_task` does, and for levels that there are not or that are alike.
    """
    if not spec.levels:
        return [(create_task(spec), spec)]
    made: dict[str, tuple[Task, TaskSpec]] = {}
    for number, level in enumerate(levels_of(spec), 1):
        try:
            task = create_task(level)
        except UserError as error:
            raise UserError(f"level {number}: {error}") from error
        if task.config in made:
            same = list(made).index(task.config) + 1
            raise UserError(f"task {spec.name!r}: its levels {same} and {number} are the same; give fewer of them")
        made[task.config] = task, level
    return list(made.values())


def levels_of(spec: TaskSpec) -> list[TaskSpec]:
    """The levels of a ladder, each as a task without levels. Raises `UserError` if reasoning-gym has fewer."""
    found = None
    if isinstance(spec.levels, list):
        found = [spec.parameters | level for level in spec.levels]
    elif is_of_reasoning_gym(spec.name):
        from shoal.tasks.reasoning import curriculum  # takes more than a second

        found = curriculum(spec.name, spec.parameters, spec.levels)
    if found is None:
        raise UserError(f"task {spec.name!r} has no curriculum: give its levels as a list, [{{...}}, {{...}}]")
    return [spec.model_copy(update={"parameters": parameters, "levels": []}) for parameters in found]
