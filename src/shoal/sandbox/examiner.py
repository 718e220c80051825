"""Examines strangers' rollouts in a process that they cannot hold up.

    with Examiner(config) as examiner:
        verdict = examiner.examine(Candidate(question, hash, (swarm, key, round), slot, texts), seconds=0.1)
    verdict.reason or verdict.rewards

The process does everything that a stranger can make expensive: it makes the question again, checks that it is the one
that the stranger's key gives, and scores the texts. After `seconds` of processor time it is replaced. Nobody is blamed
for time that the task's own code takes ("slow task"): an environment, an interpreter of programs, or a scorer that
takes as long for plain texts.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Final

import msgspec

from shoal.config.tasks import TasksConfig
from shoal.sandbox.pipes import Candidate, Made, Verdict, readable
from shoal.sandbox.process import COMMAND, GuardedProcess

__all__ = ["Candidate", "Examiner", "Verdict"]

PLAIN: Final = "<answer>{0}</answer> \\boxed{{{0}}}\n{0}"
"""An answer that holds nobody up, in every form but a pattern."""


class Examiner(AbstractContextManager["Examiner"]):
    """Examines candidates in its own process. For one thread. Close it, or use it as a context manager."""

    def __init__(self, config: TasksConfig) -> None:
        self._worker = GuardedProcess(COMMAND, config.model_dump(mode="json"))
        self._slow_anyway: dict[tuple[str, str, int], bool] = {}
        """Whether a task's scorer is slow for so many plain texts, too, by the task and its parameters' hash."""

    def start(self) -> None:
        """Start the process, which takes a second or two, before a candidate waits for it. Raises `UserError`."""
        self._worker.start()

    def examine(self, candidate: Candidate, seconds: float) -> Verdict:
        """The verdict within about `seconds` of processor time. A busy machine does not make anybody slow."""
        candidate = msgspec.structs.replace(candidate, texts=tuple(map(readable, candidate.texts)))
        self._worker.start()
        begun = self._worker.processor_seconds
        made = excused = False
        try:
            self._worker.send(candidate)
            reply = _replies.decode(self._worker.receive(seconds))
            if isinstance(reply, Made):
                made, excused = True, reply.programs
                left = seconds - (self._worker.processor_seconds - begun)
                reply = _replies.decode(self._worker.receive(left))
        except TimeoutError:
            if not made:
                return Verdict("slow question", seconds=seconds)
            return Verdict(
                "slow task" if excused or self._is_slow_anyway(candidate, seconds) else "slow", seconds=seconds
            )
        except EOFError:
            return Verdict("crash" if made else "slow question", seconds=seconds)
        except BaseException:
            self._worker.renew()
            raise
        assert isinstance(reply, Verdict)
        return reply

    def _is_slow_anyway(self, candidate: Candidate, seconds: float) -> bool:
        """Whether plain texts, too, take longer than `seconds` to score. Tried once for each task."""
        task = candidate.question.task, candidate.question.config, len(candidate.texts)
        if task not in self._slow_anyway:
            self._slow_anyway[task] = False  # for the plain texts themselves
            plain = tuple(PLAIN.format(number) for number, _ in enumerate(candidate.texts))
            verdict = self.examine(msgspec.structs.replace(candidate, texts=plain), seconds)
            self._slow_anyway[task] = verdict.reason == "slow"
        return self._slow_anyway[task]

    def close(self) -> None:
        """End the process. Examining again starts another."""
        self._worker.close()

    def __exit__(self, *_: object) -> None:
        self.close()


_replies: msgspec.msgpack.Decoder[Made | Verdict] = msgspec.msgpack.Decoder(Made | Verdict)
