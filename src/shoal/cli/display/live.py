"""The display in a terminal: how far the run is, the table of its nodes with a legend, and an example of an answer.

It is redrawn in place. Each line fits the width; what the height has no room for is left out, the example first.
"""

from __future__ import annotations

from collections.abc import Sequence
from threading import RLock
from typing import Self

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.cli.before_after import print_before
from shoal.cli.display.example import Example
from shoal.cli.display.figures import Row
from shoal.cli.display.legend import legend
from shoal.cli.display.progress import Progress
from shoal.cli.display.table import NodeTable
from shoal.cli.text import clip_end, paragraph, plain, print_paragraph, print_warning
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
