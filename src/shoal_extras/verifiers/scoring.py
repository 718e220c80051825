"""Scores a text by the rewards of a verifiers task, as `Task.score` does for a rollout that was one turn.

total(task, ({"role": "user", "content": "2 + 2 ="},), "4")       # 1.0: the sum of rewards times weights

No model is called and nothing is started: the trace is built from the texts.
"""

from __future__ import annotations

import asyncio
import os
import threading
from typing import Any, Final

from shoal.rollout import Message

MODEL: Final = "a node of shoal"
"""What a trace says of who answered."""
DIGITS: Final = 9
"""Of a sum of rewards: 0.7 + 0.2 + 0.1 is full marks."""


class _Own(threading.local):
    process = 0
    loop: asyncio.AbstractEventLoop


_own = _Own()


def own_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this thread and process. It is made before a guard is armed, which refuses its socket."""
    if _own.process != os.getpid():  # a fork must not wait on its parent's
        _own.loop, _own.process = asyncio.new_event_loop(), os.getpid()
    return _own.loop


def total(task: Any, asked: tuple[Message, ...], text: str) -> float:
    """The sum of the task's weighted rewards for `text`. Raises what a reward raises, as verifiers' `TaskError`."""
    trace = trace_of(task, asked, text)
    own_loop().run_until_complete(task.score(trace))
    return round(float(trace.reward), DIGITS)


def trace_of(task: Any, asked: tuple[Message, ...], text: str) -> Any:
    """The trace of a rollout that was asked this and answered `text`."""
    import verifiers.v1 as vf
    from verifiers.v1.state import state_cls

    kinds = {"system": vf.SystemMessage, "user": vf.UserMessage, "assistant": vf.AssistantMessage}
    messages = [kinds[message.role](content=message.content) for message in asked]
    nodes = [
        vf.MessageNode(message=message, parent=number - 1 if number else None, sampled=number == len(messages))
        for number, message in enumerate([*messages, vf.AssistantMessage(content=text)])
    ]
    return vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        agent=vf.AgentInfo(config=vf.AgentConfig(model=MODEL)),
        state=state_cls(type(task))(),
        nodes=nodes,
        root_reply=text,
        is_completed=True,
        ok=True,
        stop_condition="agent_completed",
    )
