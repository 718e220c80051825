"""The display in a terminal: how far the run is, the table of its nodes with a legend, and an example of an answer.

It is redrawn in place. Each line fits the width; what the height has no room for is left out, the example first.
"""

import re
import time
from collections.abc import Mapping, Sequence
from threading import RLock
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.display.answers import print_before
from shoal.display.figures import HISTORY, Progress, Row, cells, is_number, legend, spark
from shoal.display.text import clip, clip_end, paragraph, plain, print_paragraph, print_warning
from shoal.runs.watcher import Watcher

FEW = 4
"""Nodes that have room before the legend and the example have."""
BAR = 56
"""Columns below which there is no bar."""
NOTE_LINES = 2
"""Of a note, and of each line on the swarm."""
LABEL = 15
"""Columns of the names before what a run has chosen (`runs.choices`)."""


class LiveDisplay(Watcher):
    """A table that is redrawn in place: a row for each node, and one for their mean."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._example = Example()
        self._status = self._note = ""
        self._panel: list[str] = []
        self._lock = RLock()  # a thread of its own draws; whoever prints must not hold it
        self._live = Live(self, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        shown = plain(text, "dim")
        print_paragraph(self._live.console, shown, LABEL if "  " in text[:LABEL] else 2)

    def status(self, text: str) -> None:
        with self._lock:
            self._status = text

    def update(self, rows: Sequence[Row], round: int) -> None:
        with self._lock:
            self._status = ""
            self._progress.update(rows, round)
        if said := self._progress.forecast():
            self.say(said)

    def example(self, row: Row) -> None:
        with self._lock:
            self._example.take(row)

    def note(self, text: str) -> None:
        with self._lock:
            self._note = text

    def before(self, rows: Sequence[Row]) -> None:
        print_before(self._live.console, rows)

    def warn(self, text: str) -> None:
        """Prints it above the table, where it stays."""
        print_warning(self._live.console, text)

    def panel(self, lines: Sequence[str]) -> None:
        with self._lock:
            self._panel = list(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            yield from self._parts(console, options.max_width, console.size.height, options.ascii_only)

    def _parts(self, console: Console, width: int, height: int, ascii_only: bool) -> list[Table | Text]:
        """From top to bottom."""

        def lines(text: str, style: str) -> list[Text]:
            return paragraph(console, plain(text, style), width, most=NOTE_LINES) if text else []

        news = [line for text in self._panel for line in lines(text, "dim")]
        news += [*lines(self._status, "cyan"), *lines(self._note, "yellow")]
        table = NodeTable(self._progress, width, ascii_only)
        nodes = len(self._progress.nodes)
        room = height - 7 - len(news)  # gap, progress, gap, names of columns, mean, gap, and the cursor's line
        below: list[Table | Text] = []
        for part in (legend(table.columns, width, ascii_only), self._example.lines(width)):
            if part and room - len(part) - 1 >= min(nodes, FEW):
                below += [Text(), *part]
                room -= len(part) + 1
        return [Text(), self._header(width), Text(), table.draw(max(1, room)), *below, Text(), *news]

    def _header(self, width: int) -> Table | Text:
        progress = self._progress
        if width < BAR:
            return Text(clip_end(f"{progress.count()}  {progress.times()}", width), "bold")
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for ratio in (None, 1, None):
            grid.add_column(no_wrap=True, ratio=ratio)
        grid.add_row(
            Text(progress.count(), "bold"),
            ProgressBar(progress.total, progress.round, complete_style="cyan", finished_style="cyan"),
            Text(progress.times(), "dim"),
        )
        return grid


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
