"""See `verifiers`. Names and signatures are those of verifiers 0.4.0."""

from __future__ import annotations

import asyncio
import copy
import hashlib
import importlib
import inspect
import json
from collections.abc import Iterator
from typing import Any, Generic, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, Field

from verifiers.v1.state import State
from verifiers.v1.utils.decorators import discover_decorated

A, B, C = TypeVar("A"), TypeVar("B"), TypeVar("C")


class JudgeConfig(BaseModel):
    id: str = ""


class TaskConfig(BaseModel):
    judges: list[JudgeConfig] = Field(default_factory=list)


class TasksetConfig(BaseModel):
    model_config = ConfigDict(extra="forbid")
    id: str = ""
    task: TaskConfig = TaskConfig()


class TextContentPart(BaseModel):
    type: str = "text"
    text: str


class ImageUrlContentPart(BaseModel):
    type: str = "image_url"
    image_url: dict[str, str]


class SystemMessage(BaseModel):
    role: str = "system"
    content: Any


class UserMessage(SystemMessage):
    role: str = "user"


class ToolMessage(SystemMessage):
    role: str = "tool"


class AssistantMessage(BaseModel):
    role: str = "assistant"
    content: str | None = None
    tool_calls: list[Any] | None = None


class TaskData(BaseModel):
    model_config = ConfigDict(frozen=True)
    idx: int | None = None
    prompt: Any = None
    system_prompt: str | None = None
    image: str | None = None
    skills: list[Any] = Field(default_factory=list)
    artifacts: list[Any] = Field(default_factory=list)


class AgentConfig(BaseModel):
    model: str


class AgentInfo(BaseModel):
    config: AgentConfig


class TraceTask(BaseModel):
    type: str
    data: Any
    key: str | None = None
    hash: str | None = None


class MessageNode(BaseModel):
    message: Any
    parent: int | None = None
    sampled: bool = False


class Trace(BaseModel):
    task: TraceTask
    agent: AgentInfo
    state: Any
    nodes: list[MessageNode]
    root_reply: str
    is_completed: bool
    ok: bool
    stop_condition: str
    rewards: dict[str, float] = Field(default_factory=dict)

    @property
    def last_reply(self) -> str:
        return self.root_reply.strip()

    @property
    def messages(self) -> list[Any]:
        return [node.message for node in self.nodes]

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())


class TaskError(Exception):
    pass


class Task(Generic[A, B]):
    NEEDS_CONTAINER = False

    def __init__(self, data: Any, config: TaskConfig | None = None) -> None:
        self.data, self.config = data, config or TaskConfig()

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps(self.data.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()

    @property
    def key(self) -> str:
        return self.hash

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return []

    async def setup(self, trace: Any, runtime: Any) -> None: ...

    async def finalize(self, trace: Any, runtime: Any) -> None: ...

    async def stage_verifier(self, trace: Any, runtime: Any) -> None: ...

    def hooks(self, kind: str) -> list[Any]:
        return discover_decorated(self, kind)

    async def score(self, trace: Trace) -> None:
        known = {"task": self.data, "trace": trace}
        hooks = self.hooks("reward")
        calls = [h(**{n: known[n] for n in inspect.signature(h).parameters if n in known}) for h in hooks]
        try:
            for hook, value in zip(hooks, await asyncio.gather(*calls), strict=True):
                trace.rewards[hook.__name__] = float(value) * hook._vf_weight
        except Exception as error:
            raise TaskError(f"task {type(self).__name__} scoring: {type(error).__name__}: {error}") from error


class Taskset(Generic[A, B]):
    INFINITE = False

    def __init__(self, config: Any) -> None:
        self.config = config

    @property
    def bounded(self) -> bool:
        return not self.INFINITE

    @classmethod
    def toolsets(cls, config: Any) -> list[Any]:
        return []

    def load(self) -> Any:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for number, task in enumerate(self.load()):
            clone = copy.copy(task)
            clone.data = task.data.model_copy(update={"idx": number})
            yield clone


class Env(Generic[A]):
    pass


class SingleAgentEnv(Env[Any]):
    pass


def reward(function: Any = None, weight: float = 1.0) -> Any:
    def marked(function: Any) -> Any:
        function.reward, function._vf_weight = True, weight
        return function

    return marked if function is None else marked(function)


def import_taskset(name: str) -> Any:
    module = name.rsplit("/", 1)[-1].split("@", 1)[0].replace("-", "_").lower()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(f"taskset {name!r} not found (tried to import {module!r})") from error


def _exported(name: str, base: type) -> Any:
    module = import_taskset(name)
    for each in module.__all__:
        found = getattr(module, each)
        if isinstance(found, type) and issubclass(found, base):
            return found
    raise TypeError(f"taskset module {module.__name__!r} exports no {base.__name__} subclass via `__all__`")


def taskset_config_type(name: str) -> Any:
    return get_args(_exported(name, Taskset).__orig_bases__[0])[1]


def load_taskset(config: Any) -> Any:
    return _exported(config.id, Taskset)(config)


def environment_class(name: str) -> Any:
    try:
        return _exported(name, Env)
    except TypeError:
        return SingleAgentEnv


def default_harness_id(name: str) -> str:
    return "bash"


__all__ = ["State"]
