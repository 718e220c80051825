"""Nodes that set problems for the others, and what they set.

    node.draws = Role(tasks, staged, proposes=True)       # questions of the task `propose` alone
    node.draws = Role(tasks, staged, proposes=False)      # problems that peers set, and nothing else
    proposal_measures(Path("lab/proposer/runs/main/proposer/seed-1"), ["node-3"])      # {"proposals/valid": 0.9, ...}

Without stages the others answer questions of the other tasks.
"""

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from shoal.errors import UserError
from shoal.rollout import Question, QuestionId, Scored
from shoal.runs.tables import ROLLOUTS, read_table
from shoal.tasks import Tasks
from shoal_extras.programs.propose import PROPOSE, own_program
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


def proposal_measures(folder: Path, proposers: Sequence[str], part: float = 0.2) -> dict[str, float]:
    """Figures of a finished run. What was not measured is absent.

    - `proposals/valid_first`, `proposals/valid`: the share of valid proposals, in the first and the last `part` of
      the rounds.
    - `proposals/commonest`: of those in the last part, the share of the commonest `form`.
    """
    said = read_table(folder, ROLLOUTS, ["round", "completion", "reward"], node=proposers, task=[PROPOSE])
    if said.empty:
        return {}
    last = said["round"].max()
    early, late = said[said["round"] <= part * last], said[said["round"] > (1 - part) * last]
    figures = {"proposals/valid_first": (early["reward"] >= 1).mean(), "proposals/valid": (late["reward"] >= 1).mean()}
    forms = late["completion"][late["reward"] >= 1].map(form)
    if len(forms):
        figures["proposals/commonest"] = forms.value_counts(normalize=True).max()
    return {name: float(value) for name, value in figures.items() if not pd.isna(value)}


def form(problem: str) -> str:
    """The program of a problem without its numbers and words: `n + 3` and `n + 4` have one form."""
    return re.sub(r"'[^']*'|\d+", "_", own_program(problem))
