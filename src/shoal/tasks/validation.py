"""Whether a rollout is about a question that this node may learn from. Own and foreign rollouts are checked alike.

    question = validate(tasks, rollout.question, rollout.question_hash, len(rollout.completions))

Nobody's word is taken for a question: it is made again from its id.
"""

from __future__ import annotations

from shoal.protocols import TaskSource
from shoal.rollout import Question, QuestionId

DrawKey = tuple[str | int, ...]
"""(swarm, public key in hex, round): what a node's questions are drawn with, see `TaskSource.is_drawn`."""


class InvalidRollout(ValueError):  # noqa: N818 (it is a fact about a rollout, not a fault)
    """A rollout that is refused. `reason` is one of "completions", "task", "seed", "question" and "held out"."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def validate(
    tasks: TaskSource,
    id: QuestionId,
    question_hash: str | None,
    completions: int,
    drawn: tuple[DrawKey, int] | None = None,
) -> Question:
    """The question with `id`, made again. Raises `InvalidRollout` with the first thing that is wrong:

    - completions: there are none.
    - task: the id is not one of `tasks`', or its question cannot be made.
    - seed: the draw with this key does not give this question in this slot. Checked if `drawn` = (key, slot) is given.
    - question: the question made here has another hash than `question_hash`. None: not checked.
    - held out: the question is kept for evaluation.
    """
    if not completions:
        raise InvalidRollout("completions")
    try:
        if drawn is not None:
            key, slot = drawn
            if not tasks.is_drawn(id, slot, *key):
                raise InvalidRollout("seed")
        question = tasks.question(id)
    except InvalidRollout:
        raise
    except Exception:  # unknown tasks and numbers; and a generator may raise anything for what nobody draws
        raise InvalidRollout("task") from None
    if question_hash is not None and question_hash != question.hash:
        raise InvalidRollout("question")
    if tasks.is_held_out(question):
        raise InvalidRollout("held out")
    return question
