"""Scores completions that strangers may have written: in another process, which a completion may crash.

    with Verifier(TasksConfig(suite="pond")) as verifier:
        [[right, wrong]] = verifier.score([(question.id, ["4", "5"])])
    verifier.failures   # Counter({"timeout": 1})

A completion whose scoring takes too long, raises or kills the process scores 0 and is counted by the reason. Others are
not affected. One of which nobody can say whether it is right (`NoVerdict`) is counted, too, and gets the mean of its
group.
"""

from __future__ import annotations

import itertools
import math
import threading
from collections import Counter
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from statistics import fmean

import msgspec

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rollout import Answer, QuestionId, hash_of
from shoal.sandbox.pipes import Job, Made, Result, readable
from shoal.sandbox.process import COMMAND, GuardedProcess
from shoal.tasks.task import Trouble

MAX_TEXT = 100_000  # characters of a completion; a longer one scores 0 unread
QUESTION_TIMEOUT = 60.0  # seconds of processor time for making a question again. No answer is blamed for it.
ALMOST = math.nextafter(1.0, 0.0)  # the most that a text without a verdict gets
TROUBLES = ("timeout", "crash", "refused", "unknown", "slow question")
"""Failures that are worth a warning: it may be the scorer's fault."""
SLACK = 1e-6  # by which a score may miss [0, 1] unnoticed: rounding
BEYOND = {
    True: "they are learned from as they are; in pass@1 and for others 1 or more is right, and less is not",
    False: "1 or more is right, and all else gets 0; --partial-credit true learns from them as they are",
}
"""What becomes of such scores, by `partial_credit`."""
CACHED = 65_536  # scores that are remembered: several nodes of one process score the same shared rollouts


class Verifier(AbstractContextManager["Verifier"]):
    """Scores by the tasks' own scorers, guarded. Threads may share it. Close it, or use it as a context manager."""

    def __init__(self, config: TasksConfig) -> None:
        self.config = config
        self.failures: Counter[str] = Counter()
        """Texts that got 0 for another reason than being wrong: timeout, crash, error, refused, unknown, too long, slow
        question; of programs also no program, steps, memory, recursion, output, denied; of problems no tests; of
        drawings no drawing. And texts without a verdict: unsupported, no problem, and timeout and crash of programs. Of
        conversations: environment (it raised an error), observation (it said too much), replay, not deterministic."""
        self._trouble = Trouble()
        self._undecided = Trouble("answers have no verdict")
        self._beyond = ""
        """The first score that is not in [0, 1], and what becomes of it."""
        self._worker = GuardedProcess(COMMAND, config.model_dump(mode="json"))
        self._known: dict[str, Result] = {}
        """By a hash of the job: its text may be long."""
        self._lock = threading.Lock()

    @property
    def trouble(self) -> str:
        """The first failure of a scorer, its task and how many there were, in one line; empty if there was none. For
        example "task 'mine': ZeroDivisionError: division by zero (64 of 64 answers failed)"."""
        return "; ".join(filter(None, (str(self._trouble), str(self._undecided), self._beyond)))

    @property
    def counts(self) -> tuple[int, int]:
        """Answers that a scorer failed on so far, and all that were scored."""
        return self._trouble.failed, self._trouble.tried

    def score(self, items: Sequence[tuple[QuestionId, Sequence[Answer]]]) -> list[list[float]]:
        """Rewards of the completions' texts of each question, in the order given. A text without a verdict
        gets the mean of the others, but never full marks.

        Each distinct text of a question is scored once. Raises `UserError` if no worker can be started.
        """
        groups = [[Job(question, readable(text)) for text in texts] for question, texts in items]
        results = self._results([job for group in groups for job in group])
        return [filled([reward(results[job], self.config.partial_credit) for job in group]) for group in groups]

    def replay(self, conversations: Sequence[tuple[QuestionId, Answer]], scored: bool = True) -> list[Result]:
        """How each conversation with an environment goes. Not `scored`: it goes on."""
        jobs = [Job(question, readable(answer), scored) for question, answer in conversations]
        results = self._results(jobs)
        return [results[job] for job in jobs]

    def _results(self, wanted: Sequence[Job]) -> dict[Job, Result]:
        """The results of all jobs. Each distinct one is done once."""
        with self._lock:
            jobs = dict.fromkeys(wanted)
            keys = {job: hash_of(msgspec.structs.astuple(job)) for job in jobs}
            results = {job: self._known[key] for job, key in keys.items() if key in self._known}
            results |= self._score([job for job in jobs if job not in results])
            if len(self._known) > CACHED:
                self._known.clear()
            self._known |= {keys[job]: result for job, result in results.items() if job.scored}
        return results

    def start(self) -> None:
        """Starts the worker and does not wait: it imports while this process does. Scoring tells what it lacks."""
        threading.Thread(target=self._start, daemon=True).start()

    def _start(self) -> None:
        with self._lock, suppress(UserError):
            self._worker.start()

    def close(self) -> None:
        """End the worker. Scoring again starts another."""
        with self._lock:
            self._worker.close()

    def __exit__(self, *_: object) -> None:
        self.close()

    def _score(self, jobs: list[Job]) -> dict[Job, Result]:
        results = {job: Result(failure="too long") for job in jobs if is_too_long(job.answer)}
        pending = [job for job in jobs if job not in results]
        for trouble in (self._trouble, self._undecided):
            trouble.count(sum(job.scored for job in pending))
        while pending:
            done = self._run(pending)
            for job, result in zip(pending, done, strict=False):
                results[job] = result
                if not job.scored:  # it fails again when the conversation is scored
                    continue
                if result.score is None:
                    said = ": ".join(filter(None, (result.failure, result.detail)))
                    self._undecided.add(f"task {job.question.task!r}", said)
                elif result.detail or result.failure in TROUBLES:
                    self._trouble.add(f"task {job.question.task!r}", result.detail or result.failure)
                elif not self._beyond and abs(result.score - 0.5) > 0.5 + SLACK:
                    at = f"task {job.question.task!r} gives scores beyond 0 to 1, such as {result.score:g}"
                    self._beyond = f"{at}: {BEYOND[self.config.partial_credit]}"
            pending = pending[len(done) :]
        self.failures.update(result.failure for job, result in results.items() if result.failure and job.scored)
        return results

    def _run(self, jobs: list[Job]) -> list[Result]:
        """Results of the first of `jobs`, at least one: of all, or up to the one that the worker did not survive."""
        results: list[Result] = []
        try:
            self._worker.send(jobs)
            for _, asked in itertools.groupby(jobs, lambda job: job.question):
                made, same = None, list(asked)
                made = _replies.decode(self._worker.receive(QUESTION_TIMEOUT))
                for _ in same:
                    result = _replies.decode(self._worker.receive(self.config.score_timeout))
                    assert isinstance(result, Result)
                    results.append(result)
        except (TimeoutError, EOFError) as error:
            if not isinstance(made, Made):  # all answers to the question are lost
                return results + [Result(failure="slow question")] * len(same)
            failure = "timeout" if isinstance(error, TimeoutError) else "crash"
            return [*results, Result(None if made.programs else 0.0, failure)]
        except BaseException:
            self._worker.renew()
            raise
        return results


def is_too_long(answer: Answer) -> bool:
    """Whether an answer is refused unread."""
    return (len(answer) if isinstance(answer, str) else sum(map(len, answer))) > MAX_TEXT


def reward(result: Result, partial_credit: bool) -> float | None:
    """A raw score as a reward: with `partial_credit` what the task gives, of any size, otherwise right or nothing."""
    return result.score if result.score is None or partial_credit else float(result.score >= 1.0)


def filled(rewards: Sequence[float | None]) -> list[float]:
    """The rewards of a group in which those without a verdict get the mean of the others, so that nothing is learned
    from them. They never get full marks: they do not count as right."""
    known = [value for value in rewards if value is not None]
    mean = fmean(known) if known else 0.0
    return [ALMOST if value is None and mean == 1 else mean if value is None else value for value in rewards]


_replies: msgspec.msgpack.Decoder[Made | Result] = msgspec.msgpack.Decoder(Made | Result)
