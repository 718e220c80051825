"""The process in which a reward function runs, started by `FunctionReward`.

It calls the function as TRL's GRPOTrainer does: with keywords only, each a list with one item for each completion.
"""

import asyncio
import contextlib
import functools
import inspect
import math
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from shoal.config.own_code import reward_function
from shoal.config.rewards import FunctionSection
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError, in_brief, nearest
from shoal.rollout import Message, QuestionId
from shoal.sandbox import guard
from shoal.sandbox.pipes import Handler, serve
from shoal.tasks.data.task import DataTask
from shoal.tasks.draw import Tasks


class Start(msgspec.Struct, frozen=True):
    """What the worker is to load."""

    reward: dict[str, Any]
    """Of `FunctionSection`."""
    tasks: dict[str, Any]
    """Of `TasksConfig`: the worker makes the questions again, to know their answers."""


class Call(msgspec.Struct, frozen=True):
    """A completion to reward."""

    question: QuestionId
    prompt: tuple[Message, ...]
    text: str


class Returned(msgspec.Struct, frozen=True):
    """What the function returned for the calls of one list, or why it returned nothing."""

    values: list[float | None] = []
    failure: str = ""
    detail: str = ""
    """The error's type and message, in one line."""


def prepare(start: bytes) -> Handler:
    """A handler that calls the function that `start` names."""
    warnings.simplefilter("ignore")
    settings = msgspec.msgpack.decode(start, type=Start)
    tasks = Tasks(TasksConfig.model_validate(settings.tasks))
    function = Function(FunctionSection.model_validate(settings.reward), tasks)
    if function.spec.guarded:
        guard.install()
    calls = msgspec.msgpack.Decoder(list[Call])

    def handle(data: bytes) -> Iterator[Returned]:
        yield function(calls.decode(data))

    return handle


class Function:
    """A reward function with its arguments. Raises `UserError` if it is missing or wants an unknown argument."""

    def __init__(self, spec: FunctionSection, tasks: Tasks) -> None:
        self.spec = spec
        self.tasks = tasks
        self.function = reward_function(spec.function)
        task_columns = {"task", "question"}.union(*(t.entry(0, 0) for t in tasks.tasks if hasattr(t, "entry")))
        for name, source in spec.columns.items():
            if source not in task_columns:
                raise UserError(
                    f"reward function {spec.function!r}: columns = {{ {name} = {source!r} }}, and no task has a "
                    f"column {source!r}; {nearest(source, task_columns)}"
                )
        parameters = inspect.signature(self.function).parameters.values()
        takes_any = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
        named = [p for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
        self.wanted = None if takes_any else {p.name for p in named}
        have = {*_ALWAYS, *spec.columns, *task_columns}
        for parameter in named:
            if parameter.name not in have and not (takes_any and parameter.default is not parameter.empty):
                raise UserError(
                    f"reward function {spec.function!r} wants an argument {parameter.name!r}, which nothing gives; "
                    f'map it to a column with `columns` (columns = {{ {parameter.name} = "question" }}), or '
                    f"choose from {', '.join(sorted(have))}"
                )

    def __call__(self, calls: Sequence[Call]) -> Returned:
        """Whatever it raises is a result too."""
        try:
            arguments = self.arguments(calls)
            loop = self.loop  # made before the guard is armed, since it opens sockets
            with guard.armed() if self.spec.guarded else contextlib.nullcontext():
                values = self.function(**arguments)
                if inspect.isawaitable(values):
                    values = loop.run_until_complete(values)
                return Returned([_number(value) for value in values])
        except guard.Refused as refusal:
            return Returned(failure="refused", detail=in_brief(refusal))
        except Exception as error:  # any kind of error is that call's result
            return Returned(failure="error", detail=in_brief(error))

    def arguments(self, calls: Sequence[Call]) -> dict[str, Any]:
        """What TRL passes: prompts, completions, the dataset's columns, and hooks that do nothing here."""
        rows = [self._row(call) for call in calls]
        names = {name for row in rows for name in row}
        columns = {name: [row.get(name) for row in rows] for name in sorted(names)}
        columns |= {name: columns.get(source, [None] * len(rows)) for name, source in self.spec.columns.items()}
        prompts, completions = zip(*(self._said(call) for call in calls), strict=True)
        always = {
            "prompts": list(prompts),
            "completions": list(completions),
            "completion_ids": [None] * len(calls),
            "trainer_state": None,
            "log_extra": _nothing,
            "log_metric": _nothing,
        }
        return {k: v for k, v in (columns | always).items() if self.wanted is None or k in self.wanted}

    @functools.cached_property
    def loop(self) -> asyncio.AbstractEventLoop:
        """Made at the first call, so that a forked process has its own."""
        return asyncio.new_event_loop()

    def _said(self, call: Call) -> tuple[Any, Any]:
        """The prompt and the completion, as chats or as texts."""
        chats = self.spec.conversational
        if chats == "auto":
            task, _ = self.tasks.lookup(call.question)
            chats = not isinstance(task, DataTask) or task.conversational
        if not chats:
            return "\n".join(message.content for message in call.prompt), call.text
        prompt = [{"role": message.role, "content": message.content} for message in call.prompt]
        return prompt, [{"role": "assistant", "content": call.text}]

    def _row(self, call: Call) -> dict[str, Any]:
        """The question's columns: its task, its text, and what else the task knows, such as the answer."""
        task, _ = self.tasks.lookup(call.question)
        entry = getattr(task, "entry", None)
        known = dict(entry(call.question.seed, call.question.index)) if entry else {}
        text = "\n".join(message.content for message in call.prompt if message.role == "user")
        return {"task": call.question.task, "question": text} | known


_ALWAYS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")


def _number(value: Any) -> float | None:
    """A value as TRL reads it: None and NaN do not apply, and a text is no number. Raises `TypeError`."""
    if isinstance(value, str | bytes):
        raise TypeError(f"it returned {type(value).__name__} in place of a number")
    return None if value is None or math.isnan(found := float(value)) else found


def _nothing(*_arguments: object, **_options: object) -> None:
    """In place of the trainer's logging hooks."""


def main() -> None:
    """The process of a reward function."""
    serve(prepare)
