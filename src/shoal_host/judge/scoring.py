"""Scores answers off the event loop, each in a guarded `Verifier`, apart for trusted and other nodes.

An answer made to hang a scorer costs its verifier the time limit and a new worker, several seconds. So there are two
queues, each with a verifier of its own: one for nodes whose last answers were no trouble, one for new and troublesome
nodes. Within a queue, addresses take turns by the time that their answers took (`FairThread`), so that slow answers
delay their own sender. Answers are scored one at a time, which costs a fraction of a millisecond more than in a batch,
so that it is certain which answer caused the trouble.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.verifier import Verifier
from shoal_host.judge.fair_thread import FairThread

TROUBLES = ("timeout", "crash")
"""Failures that cost a verifier its worker."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try if no worker can be started. The answers are on disk meanwhile."""


class Scored(NamedTuple):
    """A score, and why the answer got none if it was not simply wrong."""

    score: float
    failure: str


class Scoring:
    """The two queues. Close it; answers that are not scored then are on disk."""

    def __init__(
        self,
        make: Callable[[], Verifier],
        trial: QuestionId | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`trial`: a question to start the workers with, before an answer waits for them. `note`: called with what its
        owner should know."""
        self._note, self._trial = note, trial
        self._trials = 0
        self._closed = threading.Event()
        self._queues = [(FairThread(name), make()) for name in ("trusted", "others")]
        for queue, scorer in self._queues:
            queue.submit("", lambda scorer=scorer: self._try(scorer))  # type: ignore[misc]

    def submit(self, question: QuestionId, text: str, trusted: bool, party: str) -> Future[Scored]:
        """The future score of `text`. `party`: whose turn it uses, usually its sender's address."""
        queue, scorer = self._queues[0 if trusted else 1]
        return queue.submit(party, lambda: self._score(scorer, question, text))

    def waiting(self, party: str) -> int:
        """How many answers of `party` wait for their scores."""
        return sum(queue.waiting(party) for queue, _ in self._queues)

    def close(self) -> None:
        self._closed.set()
        for queue, scorer in self._queues:
            queue.close()
            scorer.close()

    def _score(self, scorer: Verifier, question: QuestionId, text: str) -> Scored:
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
            if any(name in TROUBLES for name in failures):
                self._try(scorer)  # whoever cost the last worker pays for the start of the new one
            return Scored(score, failures[0] if failures else "")
        raise CancelledError

    def _try(self, scorer: Verifier) -> None:
        """Has the scorer start its worker."""
        if self._trial is not None:
            self._trials += 1
            with contextlib.suppress(UserError):  # the next answer tries again
                scorer.score([(self._trial, [f"trial {self._trials}"])])  # a new text: known ones need no worker
