"""Scores answers off the event loop, each in a guarded `Verifier`, the suspicious apart from the others.

An answer made to hang a scorer costs its verifier the time limit and a new worker, some seconds. So there are two
lanes, each a thread with a verifier of its own: nodes whose last answers were no trouble go through one, new and
troublesome nodes through the other. In each lane addresses take turns by the time that their answers took (`Lane`), so
that whoever gives slow answers holds up himself. Answers are scored one at a time, which costs a fraction of a
millisecond over a batch, so that a trouble is known to be that answer's and nobody else's.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import NamedTuple

from shoal.apps.judge.lanes import Lane
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.sandbox.verifier import Verifier

TROUBLES = ("timeout", "crash")
"""Failures of a verifier that cost it its worker."""
PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before the next try where no worker can be started. The answers are on disk meanwhile."""


class Scored(NamedTuple):
    """A score, and why the answer got none, if that is not for being wrong."""

    score: float
    failure: str


class Scoring:
    """The lanes. Close it; what is not scored then never is by this one, and is on disk."""

    def __init__(
        self,
        make: Callable[[], Verifier],
        trial: QuestionId | None = None,
        note: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`trial`: a question to start the workers with, before there is an answer that would wait for them."""
        self._note, self._trial = note, trial
        self._trials = 0
        self._closed = threading.Event()
        self._lanes = [(Lane(name), make()) for name in ("trusted", "others")]
        for lane, scorer in self._lanes:
            lane.submit("", lambda scorer=scorer: self._try(scorer))  # type: ignore[misc]

    def submit(self, question: QuestionId, text: str, trusted: bool, party: str) -> Future[Scored]:
        """The score that is to come. `party`: whose turn it takes, as a rule its sender's address."""
        lane, scorer = self._lanes[0 if trusted else 1]
        return lane.submit(party, lambda: self._score(scorer, question, text))

    def waiting(self, party: str) -> int:
        """Answers of `party` that wait to be scored."""
        return sum(lane.waiting(party) for lane, _ in self._lanes)

    def close(self) -> None:
        self._closed.set()
        for lane, scorer in self._lanes:
            lane.close()
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
                self._try(scorer)  # the new worker starts in the time of who cost the last one
            return Scored(score, failures[0] if failures else "")
        raise CancelledError

    def _try(self, scorer: Verifier) -> None:
        """Has the scorer start its worker."""
        if self._trial is not None:
            self._trials += 1
            with contextlib.suppress(UserError):  # the next answer tries again
                scorer.score([(self._trial, [f"trial {self._trials}"])])  # a new text: known ones need no worker
