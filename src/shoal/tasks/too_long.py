"""Questions that a model has no room for. They get no completions, and the others do."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.rollout import Completion


def too_long(groups: Sequence[tuple[Completion, ...]]) -> str:
    """A warning about the questions that have no completions; "" if all have some. `groups`: of each question.

    too_long([(), (completion,)])     # "1 of 2 questions leave the model no room for an answer"
    """
    lost = sum(not group for group in groups)
    return f"{lost} of {len(groups)} questions leave the model no room for an answer" if lost else ""
