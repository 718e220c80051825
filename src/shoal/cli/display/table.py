"""The table of a run: a row for each node and one for their mean, with as many columns as the width has room for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from shoal.cli.display.figures import cells, spark
from shoal.cli.display.progress import HISTORY, Progress
from shoal.cli.text import clip, plain

COLUMNS = {"reward": 6, "held-out": 11, "live": 4, "given": 5, "taken": 5, "pool": 4, "tok/s": 5}
"""Behind the nodes' names, and the least width of each, so that columns stay where they are."""
LEFT_OUT = ("tok/s", "given", "pool", "course", "live", "taken", "held-out")
"""What a narrow terminal does not show, this first. `course`: the rewards of the last rounds, as bars."""
GAP = 2
NAME, SHORTEST = 24, 10
"""Columns of a node's name: at most, and what a longer one keeps where it is narrow."""
COURSE = 8
"""Rounds of the course in a terminal below `WIDE` columns; `HISTORY` in others."""
WIDE = 100


class NodeTable:
    """What the table shows in a terminal of `width` columns. `columns`: those that have room."""

    def __init__(self, progress: Progress, width: int, ascii_only: bool) -> None:
        arrow = "->" if ascii_only else "→"
        self._progress = progress
        self._names = [clip(node, NAME) for node in progress.nodes]
        self._rows = [cells(progress.last.get(n, {}), progress.held_out.get(n, []), arrow) for n in progress.nodes]
        self._mean = cells(progress.mean_row(), progress.mean_held_out(), arrow)
        self._highest = max((reward for past in progress.rewards.values() for reward in past), default=0.0)
        rows = [*self._rows, self._mean]
        self._widths = {name: max([least, *(len(row[name]) for row in rows)]) for name, least in COLUMNS.items()}
        self._course = 0 if ascii_only else HISTORY if width >= WIDE else COURSE
        self.columns = list(COLUMNS)
        longest = max(map(cell_len, self._names), default=0)
        for left_out in LEFT_OUT:
            if self._room(width) >= min(longest, SHORTEST):
                break
            if left_out == "course":
                self._course = 0
            else:
                self.columns.remove(left_out)
        self._name = max(4, min(longest, self._room(width)))

    def draw(self, most: int) -> Table:
        """The table with at most `most` nodes, or those that fit and a line that says how many do not."""
        progress = self._progress
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("node", no_wrap=True, overflow="ellipsis", width=self._name)
        for name in self.columns:
            table.add_column(name, justify="right", no_wrap=True, width=self._widths[name])
            if name == "reward" and self._course:
                table.add_column("", style="cyan", no_wrap=True, width=self._course)
        nodes = progress.nodes[: most if len(progress.nodes) <= most else max(1, most - 1)]
        for node, name, row in zip(nodes, self._names, self._rows, strict=False):
            self._add(table, plain(name), row, progress.rewards.get(node, []))
        if len(nodes) < len(progress.nodes):
            table.add_row(Text(f"{len(progress.nodes) - len(nodes)} more", "dim"))
        if len(progress.nodes) > 1:
            self._add(table, Text("mean"), self._mean, progress.mean_rewards())
            table.rows[-1].style = "bold"
        return table

    def _add(self, table: Table, name: Text, row: Mapping[str, str], rewards: Sequence[float]) -> None:
        figures = [row[column] for column in self.columns]
        if self._course:
            figures.insert(1, spark(rewards[-self._course :], self._highest))
        table.add_row(name, *figures)

    def _room(self, width: int) -> int:
        """The columns that are left for the nodes' names."""
        figures = sum(GAP + self._widths[name] for name in self.columns)
        return width - figures - (GAP + self._course if self._course else 0)
