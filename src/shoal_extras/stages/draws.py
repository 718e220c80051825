"""A node's tasks with the stages that follow them.

tasks = StagedTasks(Tasks(config), stages)      # makes questions again, of tasks and of stages
draws = StagedDraws(Tasks(config), stages)      # draws a node's own
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.protocols import Draws
from shoal.rollout import Question, QuestionId, Scored
from shoal.tasks.draw import Tasks
from shoal_extras.stages.stages import Stages


class StagedTasks:
    """Tasks whose questions may be of a stage."""

    def __init__(self, tasks: Tasks, stages: Stages) -> None:
        self.tasks = tasks
        self.stages = stages

    def draw(self, n: int, *key: str | int) -> list[Question]:
        return staged(self.tasks.draw(n, *key), self.stages, key)

    def question(self, id: QuestionId) -> Question:
        return self.stages.question(id) if id.quotes else self.tasks.question(id)

    def is_held_out(self, question: Question) -> bool:
        """What is quoted answers a question that is not held out: another is never admitted."""
        return not question.id.quotes and self.tasks.is_held_out(question)


class StagedDraws:
    """Draws of tasks, or of their levels, and of stages."""

    def __init__(self, source: Tasks | Draws, stages: Stages) -> None:
        self.source = source
        self.stages = stages

    @property
    def _levels(self) -> Draws | None:
        return None if isinstance(self.source, Tasks) else self.source

    def draw(self, n: int, *key: str | int) -> list[Question]:
        return staged(self.source.draw(n, *key), self.stages, key)

    def observe(self, local: Sequence[Scored]) -> None:
        if self._levels:
            self._levels.observe(local)

    def mean_levels(self, local: Sequence[Scored]) -> dict[str, float | None]:
        return self._levels.mean_levels(local) if self._levels else {}

    def save(self, folder: Path) -> None:
        self.stages.save(folder)
        if self._levels:
            self._levels.save(folder)

    def load(self, folder: Path) -> None:
        self.stages.load(folder)
        if self._levels:
            self._levels.load(folder)


def staged(questions: Sequence[Question], stages: Stages, key: tuple[str | int, ...]) -> list[Question]:
    """`questions`, one for each slot, with those of stages in their places."""
    return [stages.draw(slot, key) or question for slot, question in enumerate(questions)]
