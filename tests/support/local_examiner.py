"""What `Examiner` does, in this process and without limits."""

from __future__ import annotations

import time

import msgspec

from shoal.protocols import Grader, TaskSource
from shoal.sandbox.pipes import Candidate, Verdict
from shoal.sandbox.replay import Replayer
from shoal.sandbox.worker import refused
from shoal.tasks.draw import InvalidRollout, validate


class LocalExaminer:
    def __init__(self, tasks: TaskSource, verifier: Grader) -> None:
        self._tasks = tasks
        self._verifier = verifier

    def examine(self, candidate: Candidate, seconds: float) -> Verdict:
        """The verdict, however long it takes."""
        begun = time.process_time()
        verdict = self._examined(candidate)
        return msgspec.structs.replace(verdict, seconds=time.process_time() - begun)

    def _examined(self, candidate: Candidate) -> Verdict:
        try:
            drawn = candidate.key, candidate.slot
            question = validate(self._tasks, candidate.question, candidate.question_hash, len(candidate.texts), drawn)
        except InvalidRollout as invalid:
            return Verdict(invalid.reason)
        observations: tuple[tuple[str, ...], ...] = ()
        if question.turns > 1 and isinstance(self._verifier, Replayer):
            results = self._verifier.replay([(question.id, text) for text in candidate.texts])
            if reason := refused(question, candidate, results):
                return Verdict(reason)
            observations = tuple(result.observations for result in results)
        [rewards] = self._verifier.score([(candidate.question, candidate.texts)])
        return Verdict("", question, tuple(rewards), observations=observations)
