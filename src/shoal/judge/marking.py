"""Scores answers off the event loop, each in a guarded `Verifier`, the suspicious apart from the others.

An answer made to hang a scorer costs its verifier the time limit and a new worker, some seconds. So there are two
lanes, each a thread with a verifier of its own: nodes whose last answers were no trouble go through one, new and
troublesome nodes through the other, where they hold up each other alone. Answers are scored one at a time, which costs
a fraction of a millisecond over a batch, so that a trouble is known to be that answer's and nobody else's.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import NamedTuple, Protocol

from shoal.errors import UserError
from shoal.rollout import QuestionId

TROUBLES = ("timeout", "crash")
"""Failures of a verifier that cost it its worker."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try where no worker can be started. The answers are on disk meanwhile."""


class Scorer(Protocol):
    """A `shoal.tasks.Verifier`."""

    @property
    def failures(self) -> Mapping[str, int]: ...

    def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]: ...

    def close(self) -> None: ...


class Marked(NamedTuple):
    """A score, and why the answer got none, if that is not for being wrong."""

    score: float
    failure: str


class Marking:
    """The lanes. Close it; what is not scored then never is by this one, and is on disk."""

    def __init__(
        self, make: Callable[[], Scorer], trial: QuestionId | None = None, note: Callable[[str], None] = lambda _: None
    ) -> None:
        """`trial`: a question to start the workers with, before there is an answer that would wait for them."""
        self._note, self._trial = note, trial
        self._closed = threading.Event()
        self._queues: list[queue.SimpleQueue[tuple[QuestionId, str, Future[Marked]] | None]] = []
        self._scorers = [make(), make()]
        self._threads = []
        for number, scorer in enumerate(self._scorers):
            waiting: queue.SimpleQueue[tuple[QuestionId, str, Future[Marked]] | None] = queue.SimpleQueue()
            name = f"shoal-judge-{('trusted', 'other')[number]}"
            thread = threading.Thread(target=self._work, args=(waiting, scorer), name=name, daemon=True)
            self._queues.append(waiting)
            self._threads.append(thread)
            thread.start()

    def submit(self, question: QuestionId, text: str, trusted: bool) -> Future[Marked]:
        """The score that is to come."""
        future: Future[Marked] = Future()
        self._queues[0 if trusted else 1].put((question, text, future))
        return future

    def waiting(self) -> list[int]:
        """Answers in each lane."""
        return [waiting.qsize() for waiting in self._queues]

    def close(self) -> None:
        self._closed.set()
        for waiting in self._queues:
            waiting.put(None)
        for thread, scorer in zip(self._threads, self._scorers, strict=True):
            thread.join(timeout=10)
            scorer.close()

    def _work(self, waiting: queue.SimpleQueue[tuple[QuestionId, str, Future[Marked]] | None], scorer: Scorer) -> None:
        if self._trial is not None:
            self._mark(scorer, self._trial, "")
        while (item := waiting.get()) is not None and not self._closed.is_set():
            question, text, future = item
            if not future.set_running_or_notify_cancel():
                continue
            if (marked := self._mark(scorer, question, text)) is not None:
                future.set_result(marked)

    def _mark(self, scorer: Scorer, question: QuestionId, text: str) -> Marked | None:
        tries = 0
        while not self._closed.is_set():
            before = dict(scorer.failures)
            try:
                [[score]] = scorer.score([(question, [text])])
            except UserError as error:
                self._note(f"answers wait to be scored: {error}")
                self._closed.wait(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1
                continue
            failures = [name for name, count in scorer.failures.items() if count > before.get(name, 0)]
            return Marked(score, failures[0] if failures else "")
        return None
