"""The process in which a reward function runs: `python -m shoal.rewards.worker`, started by `FunctionReward`.

It calls the function as TRL's GRPOTrainer does: with keywords only, all of them lists with an item for each completion.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from shoal.config.own_code import reward_function
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rewards.wire import Call, Returned, Start
from shoal.sandbox import guard
from shoal.sandbox.pipes import Handler, serve
from shoal.tasks.draw import Tasks


def main() -> None:
    serve(prepare)


def prepare(start: bytes) -> Handler:
    """What calls the function that `start` names."""
    warnings.simplefilter("ignore")
    function = Function(msgspec.msgpack.decode(start, type=Start))
    if function.start.guarded:
        guard.install()
    calls = msgspec.msgpack.Decoder(list[Call])

    def handle(data: bytes) -> Iterator[Returned]:
        yield function(calls.decode(data))

    return handle


class Function:
    """A reward function with what it is given. Raises `UserError` if it cannot be had, or wants what there is not."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.function = reward_function(start.function)
        self.tasks = Tasks(TasksConfig.model_validate(start.tasks))
        given, variable = _parameters(self.function)
        self.wanted = None if variable else given
        have = {*_ALWAYS, *start.columns, "task", "question", *_known_columns(self.tasks)}
        for name in given - have if not variable else _needed(self.function) - have:
            raise UserError(
                f"reward function {start.function!r} wants an argument {name!r}, which nothing gives; "
                f'say in `columns` what it is (columns = {{ {name} = "answer" }}), or choose from '
                f"{', '.join(sorted(have))}"
            )

    def __call__(self, calls: Sequence[Call]) -> Returned:
        """Whatever it raises is a result too."""
        try:
            arguments = self.arguments(calls)
            loop = self.loop  # made before the guard is armed, since it opens sockets
            with guard.armed() if self.start.guarded else contextlib.nullcontext():
                values = self.function(**arguments)
                if inspect.isawaitable(values):
                    values = loop.run_until_complete(values)
                return Returned([None if value is None else float(value) for value in values])
        except guard.Refused as refusal:
            return Returned(failure="refused", detail=_line(refusal))
        except Exception as error:  # any kind of error is that call's result
            return Returned(failure="error", detail=_line(error))

    def arguments(self, calls: Sequence[Call]) -> dict[str, Any]:
        """What TRL would give: prompts, completions, the dataset's columns, and hooks that do nothing here."""
        rows = [self._row(call) for call in calls]
        names = {name for row in rows for name in row}
        columns = {name: [row.get(name) for row in rows] for name in sorted(names)}
        columns |= {name: columns.get(source, [None] * len(rows)) for name, source in self.start.columns.items()}
        prompts, completions = zip(*(self._texts(call) for call in calls), strict=True)
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
        """Made at the first call, so that a process has its own and not that of the one it was forked from."""
        return asyncio.new_event_loop()

    def _texts(self, call: Call) -> tuple[Any, Any]:
        if not self.start.conversational:
            return "\n".join(message.content for message in call.prompt), call.text
        prompt = [{"role": message.role, "content": message.content} for message in call.prompt]
        return prompt, [{"role": "assistant", "content": call.text}]

    def _row(self, call: Call) -> dict[str, Any]:
        """The question's columns: its task, its text, and what the task knows besides, such as the answer."""
        task, _ = self.tasks.lookup(call.question)
        entry = getattr(task, "entry", None)
        known = dict(entry(call.question.seed, call.question.index)) if entry else {}
        text = "\n".join(message.content for message in call.prompt if message.role == "user")
        return known | {"task": call.question.task, "question": text}


_ALWAYS = ("prompts", "completions", "completion_ids", "trainer_state", "log_extra", "log_metric")


def _parameters(function: Callable[..., Any]) -> tuple[set[str], bool]:
    """Names of the parameters, and whether any others are taken too."""
    parameters = inspect.signature(function).parameters.values()
    variable = any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters)
    named = {p.name for p in parameters if p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)}
    return named, variable


def _needed(function: Callable[..., Any]) -> set[str]:
    """Names of the parameters without a default."""
    parameters = inspect.signature(function).parameters.values()
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name for p in parameters if p.default is p.empty and p.kind in kinds}


def _known_columns(tasks: Tasks) -> set[str]:
    """The columns that all tasks give, and those that some do."""
    return {name for task in tasks.tasks if hasattr(task, "entry") for name in task.entry(0, 0)}


def _nothing(*_arguments: object, **_options: object) -> None:
    """In place of the trainer's hooks: nothing is logged."""


def _line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0][:200]}" if lines else type(error).__name__


if __name__ == "__main__":
    main()
