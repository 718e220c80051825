"""Scores rollouts by this node's own verifier: its own and peers', each validated first. Conversations with
environments are held again.

    scorer = Scorer(tasks, verifier)
"""

from collections.abc import Sequence

import msgspec

from shoal.errors import UserError
from shoal.protocols import Grader, TaskSource
from shoal.rollout import Completion, FinishReason, Question, Rollout, Scored
from shoal.sandbox.replay import Replayer, refusal, replayed
from shoal.tasks.draw import InvalidRollout, validate


class Scorer:
    """Tasks that make questions again, and a verifier that scores the answers."""

    def __init__(self, tasks: TaskSource, verifier: Grader, replayer: Replayer | None = None) -> None:
        """`replayer`: what holds conversations again; None: the verifier, if it can."""
        self.tasks = tasks
        self.verifier = verifier
        self.replayer = replayer or (verifier if isinstance(verifier, Replayer) else None)
        self.refused = 0
        """Rollouts that `validate` refused, or in which a conversation went otherwise here."""

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
                if held := self._replayed(rollout, question):
                    valid.append((held, question))
                else:
                    self.refused += 1
        rewards = self.verifier.score([(r.question, [c.answer for c in r.completions]) for r, _ in valid])
        return done + [Scored(r, question, tuple(each)) for (r, question), each in zip(valid, rewards, strict=True)]

    def changed(self, asked: Sequence[tuple[Scored, Completion]]) -> list[tuple[Completion, float] | None]:
        """What the verifier gives to other completions of questions that were scored before: each with what an
        environment answers, and its reward; None if the environment ends elsewhere."""
        held: list[Completion | None] = [completion for _, completion in asked]
        talks = [at for at, (scored, _) in enumerate(asked) if scored.question.turns > 1]
        if talks and self.replayer:
            results = self.replayer.replay([(asked[at][0].question.id, asked[at][1].answer) for at in talks])
            for at, result in zip(talks, results, strict=True):
                (scored, one), cut = asked[at], asked[at][1].finish_reason == FinishReason.length
                whole = msgspec.structs.replace(one, observations=result.observations)
                held[at] = None if refusal(scored.question, one.answer, cut, result) else whole
        left = [(scored.question.id, [one.answer]) for (scored, _), one in zip(asked, held, strict=True) if one]
        rewards = iter(self.verifier.score(left))
        return [(one, next(rewards)[0]) if one else None for one in held]

    def _replayed(self, rollout: Rollout, question: Question) -> Rollout | None:
        """The rollout with what an environment answers in it; None if it answers otherwise."""
        if question.turns == 1:
            return rollout
        if self.replayer is None:
            raise UserError(f"task {question.id.task!r} answers back, which these settings cannot do: take other tasks")
        return replayed(rollout, question, self.replayer)
