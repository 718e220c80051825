"""Kinds of scoring that other packages add for rows of data sets, by entry points (`RowScore`). The core has
its own in `shoal.answers`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, Protocol

from shoal.config.own_code import call_offered, offered
from shoal.tasks.data.rows import Form

GROUP: Final = "shoal.scores"
"""Entry points of other packages: a kind's name, and what makes its `RowScore`."""


class RowScore(Protocol):
    """A kind of scoring that another package adds. Its rows may have columns of their own."""

    columns: str
    """Which columns it needs, for an error."""
    runs_programs: bool
    """Whether answers are programs (`tasks.RunsPrograms`)."""

    def form(self, columns: Collection[str]) -> Form | None:
        """How rows with these columns are read; None if they are of another kind. Its right answer verifies answers."""
        ...

    def load(self) -> str:
        """The version of its rules. Imports what scoring needs, which the guard forbids later. Raises `UserError`."""
        ...

    def answer(self, right: str) -> str:
        """A right answer, by what verifies answers."""
        ...

    def score(self, right: str, said: str) -> float:
        """The score of an answer in [0, 1]. May raise `Failed` or `NoVerdict`."""
        ...


def row_score(kind: str) -> RowScore | None:
    """The kind of this name that another package adds; None if none does. Raises `UserError`."""
    if kind not in offered(GROUP):
        return None
    made: RowScore = call_offered(GROUP, kind)
    return made
