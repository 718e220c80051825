"""From which level of a ladder a node draws next: mostly where it is neither always right nor always wrong.

    levels = Levels(tasks)
    questions = levels.draw(4, *key)
    levels.observe(local)                # what the node's own answers got

p is the node's own success at a level: the mean reward of its rollouts there, beside one that half succeeded. A level
is drawn with weight p (1 - p), so a level that is learned is still drawn, now and then. The first level is open at
once, and the next one opens as soon as p is above `LEARNED`. Other nodes' rollouts open nothing.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

from shoal.rollout import Question, Scored
from shoal.selection.success import OwnSuccess
from shoal.tasks import Tasks

LEARNED: Final = 0.7
"""The success above which the next level opens."""
FILE: Final = "levels.json"


class Levels:
    """The levels of a node's ladders, with its success at each."""

    def __init__(self, tasks: Tasks) -> None:
        self.tasks = tasks
        self.success = OwnSuccess()

    def draw(self, n: int, *key: str | int) -> list[Question]:
        """`n` training questions, as `Tasks.draw` gives them but for the level."""
        return self.tasks.draw(n, *key, weights=self.weights)

    def observe(self, local: Sequence[Scored]) -> None:
        """Counts all own rollouts of a round."""
        self.success.observe(local)

    def drawn(self, local: Sequence[Scored]) -> dict[str, float | None]:
        """For each ladder the mean level of `local`, counted from 1; None if nothing is of this ladder."""
        labels = [self.tasks.label_of(scored.question.id) for scored in local]
        found = {
            name: [levels.index(label) + 1 for label in labels if label in levels]
            for name, levels in self.tasks.ladders.items()
        }
        return {name: fmean(numbers) if numbers else None for name, numbers in found.items()}

    @property
    def weights(self) -> list[float]:
        """How often each task is drawn: a ladder as often as ever, its levels by their p (1 - p)."""
        weights = dict(zip(self.tasks.labels, self.tasks.weights, strict=True))
        for levels in self.tasks.ladders.values():
            worth, is_open = [], True
            for level in levels:
                rate, count = self.success.of(*self.tasks.identity(level))
                p = (rate * count + 0.5) / (count + 1)
                worth.append(p * (1 - p) if is_open or count else 0.0)
                is_open = p > LEARNED
            whole = sum(weights[level] for level in levels) / sum(worth)
            weights |= {level: whole * one for level, one in zip(levels, worth, strict=True)}
        return list(weights.values())

    def save(self, folder: Path) -> None:
        (folder / FILE).write_text(json.dumps(self.success.state()))

    def load(self, folder: Path) -> None:
        self.success.restore(json.loads((folder / FILE).read_text()))
