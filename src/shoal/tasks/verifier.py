"""Scoring completions that strangers may have written: in a process of its own, which may die of them.

    with Verifier(TasksConfig(suite="pond")) as verifier:
        [[right, wrong]] = verifier.score([(question.id, ["4", "5"])])
    verifier.failures   # Counter({"timeout": 1})

A completion whose scoring takes too long, raises, or takes the process with it scores 0 and is counted by the reason;
the others are not affected.
"""

from __future__ import annotations

import math
import threading
from collections import Counter, OrderedDict
from collections.abc import Sequence

from shoal.config import TasksConfig
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.tasks.process import COMMAND, WorkerProcess
from shoal.tasks.wire import Job, Result

MAX_TEXT = 100_000
"""Characters of a completion; a longer one scores 0 unread."""
STARTS = 3
"""Times in a row that a worker is started before the verifier gives up."""
CACHED = 65_536
"""Scores that are remembered: several nodes of one process score the same shared rollouts."""


class Verifier:
    """Scores by the tasks' own scorers, guarded. Threads may share it. Close it, or use it as a context manager."""

    def __init__(self, config: TasksConfig) -> None:
        self.config = config
        self.failures: Counter[str] = Counter()
        """Texts that got 0 for another reason than being wrong: timeout, crash, error, refused, unknown, too long."""
        self._worker: WorkerProcess | None = None
        self._known: OrderedDict[Job, float] = OrderedDict()
        self._lock = threading.Lock()

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        """Rewards in [0, 1] of the completions' texts of each question, in the order given.

        Each distinct text of a question is scored once. Raises `UserError` if no worker can be started.
        """
        groups = [[Job(question, _encodable(text)) for text in texts] for question, texts in items]
        with self._lock:
            jobs = dict.fromkeys(job for group in groups for job in group)
            rewards = {job: self._known[job] for job in jobs if job in self._known}
            rewards |= self._score([job for job in jobs if job not in rewards])
            self._remember(rewards)
        return [[rewards[job] for job in group] for group in groups]

    def close(self) -> None:
        """End the worker. Scoring again starts another."""
        with self._lock:
            self._stop()

    def __enter__(self) -> Verifier:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, jobs: list[Job]) -> dict[Job, float]:
        results = {job: Result(failure="too long") for job in jobs if len(job.text) > MAX_TEXT}
        pending = [job for job in jobs if job not in results]
        while pending:
            done = self._run(pending)
            results |= zip(pending, done, strict=False)
            pending = pending[len(done) :]
        self.failures.update(result.failure for result in results.values() if result.failure)
        return {job: self._reward(result) for job, result in results.items()}

    def _run(self, jobs: list[Job]) -> list[Result]:
        """Results of the first of `jobs`, at least one: of all, or up to the one that the worker did not survive."""
        worker = self._start()
        worker.submit(jobs)
        results: list[Result] = []
        try:
            for _ in jobs:
                results.append(worker.result(self.config.score_timeout))
        except TimeoutError:
            results.append(Result(failure="timeout"))
            self._stop()
        except EOFError:
            results.append(Result(failure="crash"))
            self._stop()
        except BaseException:  # an interrupt: the results still to come would be taken for the next call's
            self._stop()
            raise
        return results

    def _reward(self, result: Result) -> float:
        if math.isnan(result.score):
            return 0.0
        if self.config.partial_credit:
            return min(1.0, max(0.0, result.score))
        return 1.0 if result.score >= 1.0 else 0.0

    def _remember(self, rewards: dict[Job, float]) -> None:
        for job, reward in rewards.items():
            self._known[job] = reward
            self._known.move_to_end(job)
        while len(self._known) > CACHED:
            self._known.popitem(last=False)

    def _start(self) -> WorkerProcess:
        if self._worker is not None:
            return self._worker
        for _ in range(STARTS):
            worker = WorkerProcess(self.config)
            try:
                worker.wait_ready()
            except (TimeoutError, EOFError):
                worker.kill()
            except BaseException:
                worker.kill()
                raise
            else:
                self._worker = worker
                return worker
        raise UserError(f"the process that scores answers did not start in {STARTS} tries: {' '.join(COMMAND)}")

    def _stop(self) -> None:
        if self._worker is not None:
            self._worker.kill()
            self._worker = None


def _encodable(text: str) -> str:
    """`text` with "?" for lone surrogates, which no encoding has."""
    return text.encode("utf-8", "replace").decode()
