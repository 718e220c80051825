"""Rewards by this node's own verifier, for its own rollouts and for others'.

Nobody's word is taken for the question either: it is made again from its id, and a rollout about anything but a
training question of these tasks is dropped and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.protocols import Tasks, Verifier
from shoal.rollout import Question, Rollout, Scored


class Scorer:
    """Tasks that make questions again, and a verifier that scores the answers."""

    def __init__(self, tasks: Tasks, verifier: Verifier) -> None:
        self.tasks = tasks
        self.verifier = verifier
        self.refused = 0
        """Rollouts about another question, a held-out one, or without completions."""

    def score(self, rollouts: Sequence[Rollout]) -> list[Scored]:
        """Those of `rollouts` that are about training questions of these tasks, with their rewards."""
        asked = [(rollout, self._question(rollout)) for rollout in rollouts]
        known = [(rollout, question) for rollout, question in asked if question is not None]
        self.refused += len(asked) - len(known)
        return self.rewarded(known)

    def rewarded(self, known: Sequence[tuple[Rollout, Question]]) -> list[Scored]:
        """Rewards of rollouts whose questions have been made again."""
        rewards = self.verifier.score([(r.question, [c.text for c in r.completions]) for r, _ in known])
        return [Scored(r, question, tuple(values)) for (r, question), values in zip(known, rewards, strict=True)]

    def _question(self, rollout: Rollout) -> Question | None:
        try:
            question = self.tasks.question(rollout.question)
        except ValueError:
            return None
        honest = rollout.completions and rollout.question_hash == question.hash and not self.tasks.is_held_out(question)
        return question if honest else None
