"""Why a taskset cannot be asked in one turn of text and scored by what it has with it: in a few words, or empty.

    unfit_kind(task)        # "its reward 'passes' needs a runtime"

verifiers itself leaves out such rewards without a word where there is no runtime.
"""

from __future__ import annotations

import inspect
from typing import Any, Final

_HOOKS: Final = ("setup", "finalize", "stage_verifier")
"""Methods of a task that work in a runtime."""


def unfit_package(module: str, taskset: Any) -> str:
    """What the taskset's package needs beside the taskset."""
    import verifiers.v1 as vf

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
    import verifiers.v1 as vf
    from verifiers.v1.utils.decorators import discover_decorated

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
    judges = [name for name, value in task.config if _is_judge(value)]
    if judges:
        return f"a model judges its answers (`{judges[0]}`)"
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
    import verifiers.v1 as vf

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


def _is_judge(value: Any) -> bool:
    import verifiers.v1 as vf

    values = value if isinstance(value, list) else [value]
    return any(isinstance(one, vf.JudgeConfig) for one in values)
