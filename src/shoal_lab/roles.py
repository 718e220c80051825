"""Roles in a swarm: some nodes set problems, and the others solve them.

    node.draws = Role(tasks, staged, proposes=True)       # questions of the task `propose` alone
    node.draws = Role(tasks, staged, proposes=False)      # problems that peers set, and nothing else

Without stages the others answer questions of the other tasks.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from shoal.errors import UserError
from shoal.rollout import Question, QuestionId, Scored
from shoal.tasks import Tasks
from shoal_extras.programs.proposals import PROPOSE
from shoal_extras.stages.stages import StagedDraws, staged

NOTHING = Question(QuestionId("nothing", "", "", 0, 0), ())
"""In a slot that is for no stage, or where there is nothing to solve yet: a question without a prompt is not asked."""


class Role:
    """Draws what a node's role asks of it. Raises `UserError` for tasks that leave a role nothing to ask."""

    def __init__(self, tasks: Tasks, stages: StagedDraws | None, proposes: bool) -> None:
        """`stages`: the node's draws with stages, if there are any."""
        self.tasks = tasks
        self.stages = stages
        self.proposes = proposes
        self._weights = [float((task.name == PROPOSE) is proposes) for task in tasks.tasks]
        if not any(self._weights) and (proposes or stages is None):
            missing = "the task propose" if proposes else "the stage solve, or a task beside propose"
            raise UserError(f"experiment.proposers: there is nothing to ask of some nodes; add {missing}")

    def draw(self, n: int, *key: str | int) -> list[Question]:
        """As `Draws.draw`. `n` problems of peers need more slots than `n`: the rest are for no stage."""
        if self.proposes or self.stages is None:
            return self.tasks.draw(n, *key, weights=self._weights)
        stages = self.stages.stages
        return staged([NOTHING] * (n * (1 + len(stages.names))), stages, key)

    def observe(self, local: Sequence[Scored]) -> None: ...

    def mean_levels(self, local: Sequence[Scored]) -> dict[str, float | None]:
        return {}

    def save(self, folder: Path) -> None:
        if self.stages:
            self.stages.save(folder)

    def load(self, folder: Path) -> None:
        if self.stages:
            self.stages.load(folder)
