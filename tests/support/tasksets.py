"""A taskset of verifiers for tests: sums of two numbers, with two rewards, which misbehave when they are told to."""

from __future__ import annotations

from collections.abc import Callable

SUMS = """
import time, socket
import verifiers.v1 as vf

class Config(vf.TasksetConfig):
    largest: int = 9

class Data(vf.TaskData):
    answer: str = ""
    level: int = 1

class Sum(vf.Task[Data, vf.State]):
    @vf.reward(weight=0.9)
    async def correct(self, trace) -> float:
        said = trace.last_reply
        if said == "endless":
            while True:
                pass
        if said == "raise":
            raise ValueError("a bad day")
        if said == "open":
            socket.socket()
        return {"nan": float("nan"), "much": 1e9, "minus": -5.0}.get(said, float(said == self.data.answer))

    @vf.reward(weight=0.1)
    async def digits(self, task, trace) -> float:
        assert trace.messages[-1].content and trace.messages[-2].content == task.prompt
        return float(trace.last_reply.isdigit())

class Sums(vf.Taskset[Sum, Config]):
    def load(self):
        n = self.config.largest + 1
        pairs = [(a, b) for a in range(n) for b in range(n)]
        return [Sum(Data(prompt=f"{a} + {b} =", answer=str(a + b)), self.config.task) for a, b in pairs]

__all__ = ["Sums"]
"""

Write = Callable[[str, str], str]
