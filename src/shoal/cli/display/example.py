"""An example of what the nodes write: a question and an answer of the round, as plain characters.

Which one is shown does not depend on its reward: it is the first answer of a node, the nodes by turns.
"""

from __future__ import annotations

import re
import time

from rich.text import Text

from shoal.cli.display.figures import Row, is_number
from shoal.cli.text import clip, clip_end

HELD = 4.0
"""Seconds for which an example stays, at least: rounds may be faster than one can read."""
LINES = 3


class Example:
    """The example that is shown now."""

    def __init__(self) -> None:
        self._row: Row | None = None
        self._since = 0.0

    def take(self, row: Row) -> None:
        """`row`: of `rollouts.parquet`."""
        if self._row is None or time.monotonic() >= self._since + HELD:
            self._row, self._since = row, time.monotonic()

    def lines(self, width: int) -> list[Text]:
        """Three lines of at most `width` columns; none before the first answer."""
        row = self._row
        if row is None:
            return []
        reward = row.get("reward")
        given = f", reward {reward:.2f}" if is_number(reward) else ""
        if reward == 0 and _has(str(row["completion"]), str(row.get("answer") or "")):
            given += ", though it has the right answer in it"
        style = "green" if is_number(reward) and reward >= 1 else ""
        node = clip(str(row["node"]), 24)
        room = width - 10  # a column less than there is: terminals disagree about the width of some signs
        return [
            Text(clip_end(f"for example, {node}{given}", width), "dim"),
            Text.assemble(("question ", "dim"), clip(str(row["question"]), room)),
            Text.assemble(("answer   ", "dim"), (clip(str(row["completion"]), room) or "(nothing)", style)),
        ]


def _has(completion: str, answer: str) -> bool:
    """Whether the right answer stands in a completion. 11 does not stand in -11, 1.11, 11.5 or 2/11."""
    words = re.escape(answer.strip())
    alone = rf"(?<![\w−-])(?<!\w[.,/]){words}(?![.,/-]?\w)"
    return bool(words) and re.search(alone, completion) is not None
