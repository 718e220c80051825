"""The one way from rollouts to rewards, for a node's own and for other nodes': validate, then verify.

Nobody's word is taken for a question: it is made again from its id. A rollout about anything but a training question of
these tasks is refused and counted.
"""

from __future__ import annotations

from collections.abc import Sequence

from shoal.protocols import Tasks, Verifier
from shoal.rollout import Question, Rollout, Scored


class Scorer:
    """Tasks that make questions again, and a verifier that rewards the answers."""

    def __init__(self, tasks: Tasks, verifier: Verifier) -> None:
        self.tasks = tasks
        self.verifier = verifier
        self.refused = 0
        """Rollouts that were not valid: about another question, a held-out one, or without completions."""

    def score(self, rollouts: Sequence[Rollout | Scored]) -> list[Scored]:
        """The valid ones of `rollouts` with their rewards. What comes scored already is passed on."""
        done = [rollout for rollout in rollouts if isinstance(rollout, Scored)]
        asked = [(rollout, self._question(rollout)) for rollout in rollouts if isinstance(rollout, Rollout)]
        valid = [(rollout, question) for rollout, question in asked if question is not None]
        self.refused += len(asked) - len(valid)
        rewards = self.verifier.score([(r.question, [c.text for c in r.completions]) for r, _ in valid])
        return done + [Scored(r, question, tuple(values)) for (r, question), values in zip(valid, rewards, strict=True)]

    def _question(self, rollout: Rollout) -> Question | None:
        try:
            question = self.tasks.question(rollout.question)
        except ValueError:
            return None
        honest = rollout.completions and rollout.question_hash == question.hash and not self.tasks.is_held_out(question)
        return question if honest else None
