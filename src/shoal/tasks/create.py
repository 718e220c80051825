"""Makes tasks from their specifications, with their worked examples.

    task = create_task(TaskSpec(name="chain_sum", parameters={"max_terms": 3}))
    question = task.question(seed=7, index=0)
    worked_examples(task, spec, is_held_out)     # user, assistant, user, assistant, ...

Worked examples depend on the task's parameters and on the form of answers alone, so all nodes show the same ones.
"""

import functools
from collections.abc import Callable
from typing import Any, Final

from shoal.config.answer_form import STRICT, in_form
from shoal.config.own_code import call_offered, offered, task_maker
from shoal.config.tasks import DATA, TaskSpec
from shoal.errors import UserError, in_brief
from shoal.protocols import Environment
from shoal.rollout import Message, Question, canonical, seed_of
from shoal.tasks.data.task import data_task
from shoal.tasks.environments.games import Guess
from shoal.tasks.environments.task import EnvironmentTask
from shoal.tasks.larger import Larger
from shoal.tasks.task import Answered, Task, right_answer

GROUP: Final = "shoal.tasks"
"""Entry points of other packages: a task's name, and what makes it from its parameters."""
ADAPTERS: Final = "shoal.environments"
"""What makes an environment of a class in another form, by the form (`own_code.KINDS`)."""


def _environment(make: Callable[..., Environment], **parameters: Any) -> Task:
    return EnvironmentTask(make, parameters)


CORE: Final[dict[str, Callable[..., Task]]] = {
    Larger.name: Larger,
    DATA: data_task,
    Guess.name: functools.partial(_environment, Guess),
}
"""Tasks of the core, by their names. No task of reasoning-gym is called so."""


def create_task(spec: TaskSpec) -> Task:
    """The task that `spec` names: one of reasoning-gym's, of the core's or of an installed package's, or
    `module:attribute` (a task or an environment, shoal's or of TRL's shape) with the parameters.

    Raises `UserError` if there is no such task or if it refuses its parameters.
    """
    if not (":" in spec.name or spec.name in CORE or spec.name in offered(GROUP)):
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
    if spec.answer == STRICT and getattr(task, "runs_programs", False):
        raise UserError(f'task {spec.name!r} has programs as answers, which `answer = "strict"` cannot read')
    return task


def _maker(name: str) -> Callable[..., Task]:
    if name in offered(GROUP):
        return functools.partial(call_offered, GROUP, name)
    make, kind = task_maker(name)
    if kind == "task":
        return make
    if kind in offered(ADAPTERS):
        make = functools.partial(offered(ADAPTERS)[kind].load(), make)
    return functools.partial(_environment, make)


TRIES = 100
"""Questions that are looked at for examples."""


def worked_examples(task: Task, spec: TaskSpec, is_held_out: Callable[[Question], bool]) -> tuple[Message, ...]:
    """`spec.examples` questions with their right answers; as far as possible, answers that differ. None is held out.

    Raises `UserError` if the task does not say its right answers, has too few questions, or shows pictures.
    """
    if not spec.examples:
        return ()
    if not isinstance(task, Answered):
        raise UserError(f"task {spec.name!r} cannot give examples: it needs the method `answer` (shoal.tasks.Answered)")
    found = _solved(task, is_held_out)
    if len(found) < spec.examples:
        raise UserError(
            f"task {spec.name!r} has {len(found)} examples within {TRIES} questions, not {spec.examples}: it names no "
            "right answers, or too few questions differ"
        )
    first = {answer: text for text, answer in reversed(found.items())}  # the first question of each answer
    order = sorted(found, key=lambda text: first[found[text]] != text)[: spec.examples]
    messages: list[Message] = []
    try:
        for text in order:
            messages += Message("user", text), Message("assistant", in_form(found[text], spec.answer))
    except ValueError as error:
        raise UserError(f"task {spec.name!r}: no examples can be written in this form: {error}") from error
    return tuple(messages)


def _solved(task: Answered, is_held_out: Callable[[Question], bool]) -> dict[str, str]:
    """Texts of training questions that differ, with their right answers."""
    seed, found = seed_of("examples", task.name, task.config), dict[str, tuple[str, str]]()
    for index in range(TRIES):
        try:
            question = task.question(seed, index)
        except UserError:
            raise
        except Exception:  # own code raises whatever it does: it may fail on some questions
            continue
        answer = right_answer(task, question.id)
        if question.pictures:
            raise UserError(f"task {task.name!r} gives no examples: its questions show pictures")
        if answer and not is_held_out(question):
            found.setdefault(canonical(question.text), (question.text, answer))
    return dict(found.values())
