"""What a task is, and how one is made from its specification.

    task = create_task(TaskSpec(name="chain_sum", parameters={"max_terms": 3}))
    question = task.question(seed=7, index=0)

Anything with the members of `Task` is one: see docs/tasks.md for one of one's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shoal.config.own_code import task_maker
from shoal.config.tasks import TaskSpec
from shoal.errors import UserError
from shoal.errors import nearest as nearest
from shoal.rollout import Question, QuestionId

MAX_INDEX = 1000
"""The highest index of a question in its series; what names a higher one is refused."""


@runtime_checkable
class Task(Protocol):
    """A source of questions. `(name, version, config, seed, index)` gives the same question on every machine."""

    name: str
    version: str
    """Another one may make another question of the same numbers."""
    config: str
    """`hash_of` all parameters, defaults included."""
    partial_credit: str
    """What part of a score an answer may get that is not right, in one line; empty: right or nothing."""

    def question(self, seed: int, index: int) -> Question:
        """Question `index` of the series `seed`, in [0, 2**63). Depends on nothing else."""
        ...

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """Raw scores in [0, 1], one for each answer. A stranger's answer is scored in the verifier's worker alone."""
        ...


def create_task(spec: TaskSpec) -> Task:
    """The task that `spec` names: one of reasoning-gym's, or `module:attribute` called with the parameters.

    Raises `UserError` if there is none of that name or it refuses its parameters.
    """
    if ":" in spec.name:
        return _own_task(spec)
    # reasoning-gym takes more than a second to import: only who makes a question pays it.
    from shoal.tasks.reasoning import ReasoningTask

    return ReasoningTask(spec.name, spec.parameters)


def _own_task(spec: TaskSpec) -> Task:
    make = task_maker(spec.name)
    try:
        task = make(**spec.parameters)
    except (TypeError, ValueError, AssertionError) as error:
        raise UserError(f"task {spec.name!r}: {error}") from error
    if not isinstance(task, Task):
        raise UserError(f"task {spec.name!r} is not a task: see shoal.tasks.Task for what it must have")
    return task
