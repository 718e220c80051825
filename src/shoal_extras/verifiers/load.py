"""Loads a taskset of verifiers v1 by its module's name, and refuses what cannot be asked in one turn of text and scored
by what it has with it: verifiers itself leaves out such rewards without a word where there is no runtime.

    taskset = load("gsm8k-v1", {"split": "train"})
    taskset.tasks[3].data.prompt
    unfit_kind(task)                # "its reward 'passes' needs a runtime"; empty if nothing is missing

A taskset is code: to load it is to run it, as with any module that one imports.
"""

import functools
import inspect
import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import verifiers.v1 as vf
from pydantic import ValidationError
from verifiers.v1.utils.decorators import discover_decorated

from shoal.config.own_code import importing
from shoal.errors import UserError, in_brief
from shoal.rollout import hash_of
from shoal.tasks.data.rows import Asked, Form, Row, Unusable, row_of
from shoal.untrusted import printable

_HOOKS: Final = ("setup", "finalize", "stage_verifier")
"""Methods of a task that work in a runtime."""


def unfit_package(module: str, taskset: Any) -> str:
    """What the taskset's package needs beside the taskset."""
    environment = vf.environment_class(module)
    if environment is not vf.SingleAgentEnv:
        return f"it has an environment of its own ({environment.__name__}), with several turns or agents"
    if vf.default_harness_id(module) == module:
        return "it has a harness of its own"
    if taskset.toolsets(taskset.config):
        return "it has tools"
    return "" if taskset.bounded else "its tasks have no end"


def unfit_kind(task: Any) -> str:
    """What all tasks of this type need, with this configuration."""
    kind = type(task)
    if kind.NEEDS_CONTAINER:
        return "it needs a container"
    if kind.toolsets(task.config):
        return "it has tools"
    for name in _HOOKS:
        if getattr(kind, name) is not getattr(vf.Task, name):
            return f"it works in a runtime (`{name}`)"
    if discover_decorated(task, "intercept"):
        return "it changes what is asked or answered (`intercept`)"
    for name, value in task.config:
        if any(isinstance(one, vf.JudgeConfig) for one in (value if isinstance(value, list) else [value])):
            return f"a model judges its answers (`{name}`)"
    rewards = task.hooks("reward")
    for reward in rewards:
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            return f"its reward {reward.__name__!r} needs a runtime"
        if not inspect.iscoroutinefunction(inspect.unwrap(reward)):
            return f"its reward {reward.__name__!r} is not async, as verifiers wants it"
    return "" if rewards else "it has no rewards"


def unfit_data(data: Any) -> str:
    """What one task needs."""
    if data.image:
        return "it needs a container (`image`)"
    if data.skills or data.artifacts:
        return "it works with files in a runtime (`skills`, `artifacts`)"
    if data.prompt is None:
        return "a user begins the conversation (`prompt` is missing)"
    for message in [] if isinstance(data.prompt, str) else data.prompt:
        if isinstance(message, vf.ToolMessage) or (isinstance(message, vf.AssistantMessage) and message.tool_calls):
            return "its prompt has calls of tools"
        if isinstance(message.content, list) and any(not isinstance(p, vf.TextContentPart) for p in message.content):
            return "its prompt has pictures"
    return ""


MOST: Final = 1_000_000
"""Tasks of a taskset, all of which are in memory."""
_FORM: Final = Form("", "prompt", "", lambda row: Asked(row.get("prompt"), None))


@dataclass(frozen=True)
class Loaded:
    """A taskset that can be asked and scored."""

    name: str
    tasks: list[Any]
    """Its tasks (`verifiers.v1.Task`), in its order."""
    rows: list[Row]
    """What each of them asks."""
    rewards: list[str]
    """The names of its rewards."""
    content: str
    """The hash of all that is asked, with what the tasks know about it."""


def load(module: str, parameters: Mapping[str, Any]) -> Loaded:
    """The taskset that `module` exports, made with `parameters`, once in a process. Raises `UserError` if there is
    none, or with the reason why it cannot be used."""
    return _load(module, msgspec.json.encode(parameters, order="sorted"))


@functools.lru_cache(maxsize=8)
def _load(module: str, parameters: bytes) -> Loaded:
    name = module.rpartition("/")[2].partition("@")[0]  # as verifiers reads owner/name@version
    if not re.fullmatch(r"[\w.-]{1,64}", name, re.ASCII):
        raise UserError(f"verifiers:{printable(module, 64)}: give the name of a module, such as verifiers:my-taskset")
    with importing():
        tasks = _tasks(module, msgspec.json.decode(parameters))
    rows = _rows(module, tasks)
    content = hash_of([_content(task, row) for task, row in zip(tasks, rows, strict=True)])
    return Loaded(name, tasks, rows, sorted({hook.__name__ for hook in tasks[0].hooks("reward")}), content)


def _tasks(module: str, parameters: dict[str, Any]) -> list[Any]:
    try:
        vf.import_taskset(module)
        kind = vf.taskset_config_type(module)
        taskset = vf.load_taskset(kind.model_validate({**parameters, "id": module}))
        reason = unfit_package(module, taskset)
        tasks = [] if reason else list(itertools.islice(taskset, MOST + 1))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"])) or "its parameters"
        known = ", ".join(sorted(set(kind.model_fields) - {"id"}))
        raise UserError(f"taskset {module!r}: {where}: {first['msg']} (it has {known})") from error
    except Exception as error:  # the taskset's own code: its import, its files, its data set, the network
        raise UserError(
            f"taskset {module!r} cannot be loaded, as a package or a module of this folder for verifiers v1: "
            f"{printable(in_brief(error.__cause__ or error))}"
        ) from error
    if reason or not tasks:
        raise UserError(f"taskset {module!r} is refused: {reason or 'it has no tasks'}")
    if len(tasks) > MOST:
        raise UserError(f"taskset {module!r} has more than {MOST:,} tasks: give it a parameter that takes fewer")
    return tasks


def _rows(module: str, tasks: list[Any]) -> list[Row]:
    """What each task asks. Raises `UserError` for the first that cannot be asked."""
    seen, rows = set(), []
    for number, task in enumerate(tasks):
        kind = (type(task), id(task.config))
        reason = "" if kind in seen else unfit_kind(task)
        seen.add(kind)
        if reason := reason or unfit_data(task.data):
            raise UserError(f"taskset {module!r} is refused: {reason}")
        try:
            rows.append(row_of({"prompt": turns(task.data)}, _FORM))
        except Unusable as unusable:
            raise UserError(f"taskset {module!r} is refused: its task {number} {unusable}") from None
    return rows


def turns(data: Any) -> list[dict[str, str]]:
    """What a task asks, as chat messages; its system prompt is the first."""
    before = [{"role": "system", "content": data.system_prompt}] if data.system_prompt else []
    if isinstance(data.prompt, str):
        return [*before, {"role": "user", "content": data.prompt}]
    return [*before, *({"role": message.role, "content": _text(message.content)} for message in data.prompt)]


def own_fields(task: Any) -> dict[str, Any]:
    """The fields of a task's data that its author added, as plain data."""
    own = set(type(task.data).model_fields) - set(vf.TaskData.model_fields)
    return dict(task.data.model_dump(mode="json", include=own))


def _content(task: Any, row: Row) -> list[Any]:
    """What the content hash covers of a task: its prompt and its own data; or its key, where its author says what that
    is. Fields of verifiers' own are left out, as another version of it may have others."""
    return [row.turns, own_fields(task) if type(task).key is vf.Task.key else task.key]


def _text(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part.text for part in content or [])
