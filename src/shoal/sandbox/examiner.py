"""What strangers say is examined in a process that they cannot hold up.

    with Examiner(config) as examiner:
        verdict = examiner.examine(Candidate(question, hash, (swarm, key, round), slot, texts), seconds=0.1)
    verdict.reason or verdict.rewards

The process does all that a stranger can make expensive: it makes the question again, checks that it is the one that the
stranger's key gives, and scores the texts. After `seconds` of processor time it is replaced.
"""

from __future__ import annotations

import time

import msgspec

from shoal.config.tasks import TasksConfig
from shoal.protocols import DrawnTasks
from shoal.protocols import Verifier as AnyVerifier
from shoal.sandbox.messages import Candidate, Made, Verdict
from shoal.sandbox.process import WorkerProcess
from shoal.sandbox.verifier import encodable

__all__ = ["Candidate", "Examiner", "LocalExaminer", "Verdict", "checked"]


class Examiner:
    """Examines candidates in a process of its own. One thread may use it: each has its own. Close it, or use it as a
    context manager."""

    def __init__(self, config: TasksConfig) -> None:
        self._worker = WorkerProcess(config)

    def start(self) -> None:
        """Have the process ready, which takes a second or two, before there is a candidate that would wait for it.
        Raises `UserError` if it cannot be started, as `examine` does."""
        self._worker.start()

    def examine(self, candidate: Candidate, seconds: float) -> Verdict:
        """The verdict within about `seconds` of processor time. A busy machine makes nobody slow."""
        texts = tuple(encodable(text) for text in candidate.texts)
        self._worker.start()
        begun = self._worker.processor_seconds
        made = False
        try:
            self._worker.submit(msgspec.structs.replace(candidate, texts=texts))
            reply = self._worker.result(seconds)
            if isinstance(reply, Made):
                made = True
                reply = self._worker.result(seconds - (self._worker.processor_seconds - begun))
        except TimeoutError:
            return Verdict("slow" if made else "slow question", seconds=seconds)
        except EOFError:
            return Verdict("crash" if made else "slow question", seconds=seconds)
        except BaseException:
            self._worker.renew()
            raise
        assert isinstance(reply, Verdict)
        return reply

    def close(self) -> None:
        """End the process. Examining again starts another."""
        self._worker.close()

    def __enter__(self) -> Examiner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class LocalExaminer:
    """The same in this process and without limits, for simulations and tests."""

    def __init__(self, tasks: DrawnTasks, verifier: AnyVerifier) -> None:
        self._tasks = tasks
        self._verifier = verifier

    def examine(self, candidate: Candidate, seconds: float) -> Verdict:
        """The verdict, however long it takes."""
        begun = time.process_time()
        verdict = checked(self._tasks, candidate)
        if not verdict.reason:
            [rewards] = self._verifier.score([(candidate.question, candidate.texts)])
            verdict = msgspec.structs.replace(verdict, rewards=tuple(rewards))
        return msgspec.structs.replace(verdict, seconds=time.process_time() - begun)

    def close(self) -> None:
        """There is nothing to close."""

    def __enter__(self) -> LocalExaminer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def checked(tasks: DrawnTasks, candidate: Candidate) -> Verdict:
    """The question of a candidate, made again, or the reason why the candidate is none."""
    try:
        if not tasks.is_drawn(candidate.question, candidate.slot, *candidate.key):
            return Verdict("seed")
        question = tasks.question(candidate.question)
    except Exception:  # unknown tasks and numbers; and a generator may raise anything for what nobody draws
        return Verdict("task")
    if candidate.question_hash != question.hash:
        return Verdict("question")
    if tasks.is_held_out(question):
        return Verdict("held out")
    return Verdict(question=question)
