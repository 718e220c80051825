"""Scores rollouts by this node's own verifier: its own and others' alike, each validated first."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.protocols import Tasks, Verifier
from shoal.rollout import Rollout, Scored
from shoal.tasks.validation import InvalidRollout, validate


class Scorer:
    """Tasks that make questions again, and a verifier that scores the answers."""

    def __init__(self, tasks: Tasks, verifier: Verifier) -> None:
        self.tasks = tasks
        self.verifier = verifier
        self.refused = 0
        """Rollouts that `validate` refused."""

    def score(self, rollouts: Sequence[Rollout | Scored]) -> list[Scored]:
        """The valid ones of `rollouts` with their rewards. The others are counted in `refused`. What comes scored
        already is passed on."""
        done = [rollout for rollout in rollouts if isinstance(rollout, Scored)]
        valid = []
        for rollout in rollouts:
            if isinstance(rollout, Scored):
                continue
            try:
                question = validate(self.tasks, rollout.question, rollout.question_hash, len(rollout.completions))
            except InvalidRollout:
                self.refused += 1
            else:
                valid.append((rollout, question))
        rewards = self.verifier.score([(r.question, [c.text for c in r.completions]) for r, _ in valid])
        return done + [Scored(r, question, tuple(values)) for (r, question), values in zip(valid, rewards, strict=True)]
