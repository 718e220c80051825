"""Recipes of small models that a study makes for itself: what they know, and how readily they say it.

[bases.sparse]                 # in a study file; `policy.model = ["base:sparse"]` takes it
start = "guppy"
right = 0.01                   # about 0.0023 of held-out pass@1 at the start
steps = 200
"""

from collections.abc import Mapping
from graphlib import TopologicalSorter
from typing import Final, Self

from pydantic import Field, model_validator

from shoal.config.policy import GUPPY
from shoal.config.sections import Section
from shoal.config.tasks import TasksConfig
from shoal.errors import nearest
from shoal.tasks.suites import specs_of

BASE: Final = "base:"
"""Prefix of the name of a model that the study makes."""
RECIPE: Final = "recipe.json"
"""The recipe of a base, in its folder."""


class Recipe(Section):
    """How to make a policy."""

    start: str = ""
    """The base it starts from, or guppy; none: from scratch, with its own vocabulary."""
    tasks: TasksConfig = TasksConfig()
    """What it is asked."""
    knows: list[str] = []
    """The tasks whose right answers it is shown; none named: all. For others it is shown useless answers."""
    right: float = Field(0.1, ge=0, le=1)
    """The share of right answers in form."""
    refused: float = Field(0.3, ge=0, le=1)
    """The share of right answers in a form that the verifier refuses."""
    forms: list[str] = Field(["{}"], min_length=1)
    """What a right answer in form looks like; {} is the answer. One is drawn at random for each example."""
    shown: float = Field(0.0, ge=0, le=1)
    """The share of examples with an earlier turn. In one half of them it is the same question with an answer, right or
    that of another question, which is to be given again: so the model uses what it is shown. In the other half it is
    another question of the task with its answer, which is of no use."""
    steps: int = Field(1500, ge=0)
    """Batches."""
    batch: int = Field(96, ge=1)
    """Examples in each."""
    hidden_size: int = Field(128, ge=32, multiple_of=32)
    """Of a base from scratch: 128 is guppy's."""
    layers: int = Field(4, ge=1)
    """Of a base from scratch."""
    seed: int = 0
    """Of examples and their order."""

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if self.right + self.refused > 1:
            raise ValueError("right and refused are shares of one whole")
        names = {spec.name for spec in specs_of(self.tasks)}
        if unknown := sorted(set(self.knows) - names):
            raise ValueError(f"knows: it is not asked {unknown[0]!r}; {nearest(unknown[0], names)}")
        return self


def in_order(bases: Mapping[str, Recipe]) -> list[list[str]]:
    """The bases in turns: each needs only bases of earlier turns. Raises `ValueError` for one that nothing can
    make."""
    starts = {"", GUPPY, *bases}
    if missing := [f"{name} from {r.start!r}" for name, r in bases.items() if r.start not in starts]:
        raise ValueError(f"there is nothing to make these from: {', '.join(missing)}")
    order = TopologicalSorter({name: {recipe.start} & bases.keys() for name, recipe in bases.items()})
    order.prepare()
    turns: list[list[str]] = []
    while turn := order.get_ready():
        turns.append(list(turn))
        order.done(*turn)
    return turns
