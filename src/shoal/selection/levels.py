"""From which level of a ladder a node draws next: mostly where it is neither always right nor always wrong.

    levels = Levels(tasks)
    questions = levels.draw(4, *key)
    levels.observe(local)                # what the node's own answers got

A level has the weight p (1 - p). p is the mean reward of the node's last rollouts there and of one imaginary rollout,
which has the reward 0.5 at the first level and at each level above a learned one, and 0 elsewhere. So a node begins at
the lowest level and climbs as it learns. One draw in ten is of any level: what is learned is asked again, and a higher
level that is easier after all is found. Peers' rollouts do not count.
"""

from collections.abc import Sequence
from pathlib import Path
from statistics import fmean
from typing import Final

import msgspec

from shoal.rollout import Question, Scored
from shoal.selection.success import OwnSuccess
from shoal.tasks import Tasks

LEARNED: Final = 0.7
"""The success above which the next level is tried."""
EXPLORED: Final = 0.1
"""The share of a ladder's draws that is spread over all its levels."""
FILE: Final = "levels.msgpack"


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

    def mean_levels(self, local: Sequence[Scored]) -> dict[str, float | None]:
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
            worth, made_up = [], 0.5
            for level in levels:
                rate, count = self.success.of(*self.tasks.identity(level))
                p = (rate * count + made_up) / (count + 1)
                worth.append(p * (1 - p))
                made_up = 0.5 if p > LEARNED else 0.0
            for level, one in zip(levels, worth, strict=True):
                share = (1 - EXPLORED) * one / sum(worth) + EXPLORED / len(levels)
                weights[level] *= len(levels) * share
        return list(weights.values())

    def save(self, folder: Path) -> None:
        (folder / FILE).write_bytes(msgspec.msgpack.encode(self.success))

    def load(self, folder: Path) -> None:
        self.success = msgspec.msgpack.decode((folder / FILE).read_bytes(), type=OwnSuccess)
