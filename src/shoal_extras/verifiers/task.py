"""A taskset of verifiers as a task: `TaskSpec(name="verifiers:gsm8k-v1", parameters={"split": "train"})`.

    task = taskset_task("gsm8k-v1", split="train")
    question = task.question(seed=7, index=0)
    task.score(question.id, ["\\\\boxed{18}"])

A question is (content hash of the taskset, row), as in a data set: a peer looks the row up in its own copy. Answers are
scored by the task's rewards, from a trace that is built from the texts: no model is called and nothing is started.
"""

from __future__ import annotations

import asyncio
import functools
import os
import re
import threading
from collections.abc import Sequence
from typing import Any, Final

import verifiers.v1 as vf
from verifiers.v1.state import state_cls

from shoal.rollout import Message, Question, QuestionId, hash_of, seed_of
from shoal.tasks.data.forms import ANSWERS
from shoal.tasks.data.rows import Row
from shoal_extras.verifiers.load import Loaded, load, own_fields

MODEL: Final = "a node of shoal"
"""What a trace says of who answered."""
DIGITS: Final = 9
"""Of a sum of rewards: 0.7 + 0.2 + 0.1 is full marks."""


@functools.cache
def _loop(process: int, thread: int) -> asyncio.AbstractEventLoop:
    return asyncio.new_event_loop()


def own_loop() -> asyncio.AbstractEventLoop:
    """The event loop of this thread and process: a fork must not wait on its parent's. It is made before a guard is
    armed, which refuses its socket."""
    return _loop(os.getpid(), threading.get_ident())


def total(task: Any, asked: tuple[Message, ...], text: str) -> float:
    """The sum of the task's weighted rewards for `text`. Raises what a reward raises, as verifiers' `TaskError`."""
    trace = trace_of(task, asked, text)
    own_loop().run_until_complete(task.score(trace))
    return round(float(trace.reward), DIGITS)


def trace_of(task: Any, asked: tuple[Message, ...], text: str) -> Any:
    """The trace of a rollout that was asked this and answered `text`."""
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


_TAG: Final = re.compile(r"<([A-Za-z]\w{0,31})>")


def taskset_task(module: str, /, **parameters: Any) -> TasksetTask:
    """The task of the taskset that `module` exports, made with these parameters. Raises `UserError`."""
    return TasksetTask(load(module, parameters))


class TasksetTask:
    """Questions that are the tasks of a taskset. Partial credit: the sum of its rewards times their weights."""

    def __init__(self, taskset: Loaded) -> None:
        self.taskset = taskset
        self.name = taskset.name
        self.version = taskset.content
        self.config = hash_of(taskset.rewards)
        # pydantic compiles what a guard would refuse, once
        trace_of(taskset.tasks[0], taskset.rows[0].messages, "")

    def __len__(self) -> int:
        return len(self.taskset.tasks)

    @property
    def description(self) -> str:
        rewards = ", ".join(self.taskset.rewards)
        return f"{len(self):,} tasks of verifiers, scored by {rewards}; its hash is {self.version[:12]}"

    @property
    def has_steps(self) -> bool:
        """Whether an answer is likely to need steps before it."""
        first = self.taskset.rows[0]
        return marked("", first) != "" or any(role == "system" for role, _ in first.turns)

    def question(self, seed: int, index: int) -> Question:
        own_loop()  # the worker makes a question before it arms the guard
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, self.taskset.rows[self._number(seed, index)].messages)

    def answer(self, question: QuestionId) -> str | None:
        """The right answer, if the task's data has a text or number called `answer` or `solution`, in the form that its
        prompt asks for; otherwise None."""
        entry = self.entry(question.seed, question.index)
        known = next((entry[name] for name in ANSWERS if name in entry), None)
        if isinstance(known, bool) or not isinstance(known, str | int | float) or not str(known).strip():
            return None
        return marked(str(known).strip(), self.taskset.rows[self._number(question.seed, question.index)])

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """The sum of the weighted rewards of each answer."""
        number = self._number(question.seed, question.index)
        task, asked = self.taskset.tasks[number], self.taskset.rows[number].messages
        return [total(task, asked, answer) for answer in answers]

    def entry(self, seed: int, index: int) -> dict[str, Any]:
        """What a task's data has beyond its prompt, as reward functions get it."""
        return own_fields(self.taskset.tasks[self._number(seed, index)])

    def _number(self, seed: int, index: int) -> int:
        return seed_of("row", seed, index) % len(self)


def marked(answer: str, row: Row) -> str:
    """An answer with the marks that the prompt speaks of: `\\boxed{}`, `####`, or the last tag that it names."""
    asked = "\n".join(text for _, text in row.turns)
    if "\\boxed" in asked:
        return f"\\boxed{{{answer}}}"
    if "####" in asked:
        return f"#### {answer}"
    tags = _TAG.findall(asked)
    return f"<{tags[-1]}>{answer}</{tags[-1]}>" if tags else answer
