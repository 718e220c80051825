"""The display in a terminal: how far the run is, the table of its nodes with a legend, and an example of an answer.

It is redrawn in place. Each line fits the width; what the height has no room for is left out, the example first.
"""

import time
from collections.abc import Sequence
from threading import RLock
from typing import Self

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.display.figures import Progress, Row, cells, is_number, legend
from shoal.display.text import clip, paragraph, plain, print_paragraph, print_warning
from shoal.runs.watcher import Watcher

FEW = 4  # nodes that have room before the legend and the example have
WIDTH = 78  # columns that the table needs
NOTE_LINES = 2  # of a note, and of each line on the swarm
LABEL = 15  # columns of the names before what a run has chosen (`runs.choices`)
HELD = 4.0  # seconds for which an example stays, at least: rounds may be faster than one can read


class LiveDisplay(Watcher):
    """A table that is redrawn in place: a row for each node, and one for their mean."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._example: Row | None = None
        self._example_since = 0.0
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

    def example(self, row: Row) -> None:
        with self._lock:
            if self._example is None or time.monotonic() >= self._example_since + HELD:
                self._example, self._example_since = row, time.monotonic()

    def note(self, text: str) -> None:
        with self._lock:
            self._note = text

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
        styled = [*((line, "dim") for line in self._panel), (self._status, "cyan"), (self._note, "yellow")]
        notes = [paragraph(console, plain(*each), width, most=NOTE_LINES) for each in styled if each[0]]
        news = [line for note in notes for line in note]
        table = NodeTable(self._progress, width, "->" if ascii_only else "→")
        meanings = paragraph(console, plain(legend(table.widths), "dim"), width)
        room = height - 7 - len(news)  # gap, progress, gap, names of columns, mean, gap, and the cursor's line
        below: list[Table | Text] = []
        for part in (meanings, _example(self._example, width) if self._example else []):
            if part and room - len(part) - 1 >= min(len(table.rows), FEW):
                below += [Text(), *part]
                room -= len(part) + 1
        return [Text(), self._header(), Text(), table.shown(max(1, room)), *below, Text(), *news]

    def _header(self) -> Table:
        progress = self._progress
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for ratio in (None, 1, None):
            grid.add_column(no_wrap=True, ratio=ratio)
        grid.add_row(
            Text(progress.count(), "bold"),
            ProgressBar(progress.total, progress.round, complete_style="cyan", finished_style="cyan"),
            Text(progress.times(), "dim"),
        )
        return grid


COLUMNS = {"reward": 6, "held-out": 11, "live": 4, "used": 4, "contribution": 12, "pool": 4, "tok/s": 5}
"""Behind the nodes' names, and the least width of each, so that columns stay where they are."""
GAP = 2
NAME = 24  # columns of a node's name, at most


class NodeTable:
    """The figures of all nodes and their mean."""

    def __init__(self, progress: Progress, width: int, arrow: str) -> None:
        self.rows = [
            (clip(name, NAME), cells(progress.last.get(name, {}), progress.held_out.get(name, []), arrow))
            for name in progress.nodes
        ]
        self.mean = cells(progress.mean_row(), progress.mean_held_out(), arrow)
        figures = [self.mean, *(row for _, row in self.rows)]
        self.widths = {name: max(least, *(len(row[name]) for row in figures)) for name, least in COLUMNS.items()}
        longest = max((cell_len(name) for name, _ in self.rows), default=0)
        self.name_width = max(4, min(longest, width - sum(GAP + each for each in self.widths.values())))

    def shown(self, most: int) -> Table:
        """At most `most` nodes, or those that fit and a line that says how many do not."""
        table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
        table.add_column("node", no_wrap=True, overflow="ellipsis", width=self.name_width)
        for name, width in self.widths.items():
            table.add_column(name, justify="right", no_wrap=True, width=width)
        shown = self.rows if len(self.rows) <= most else self.rows[: max(1, most - 1)]
        for name, row in shown:
            table.add_row(plain(name), *(row[each] for each in self.widths))
        if len(shown) < len(self.rows):
            table.add_row(Text(f"{len(self.rows) - len(shown)} more", "dim"))
        if len(self.rows) > 1:
            table.add_row("mean", *(self.mean[each] for each in self.widths), style="bold")
        return table


def _example(row: Row, width: int) -> list[Text]:
    """A row of `rollouts.parquet` in three lines of at most `width` columns."""
    reward = row.get("reward")
    given = f", reward {reward:.2f}" if is_number(reward) else ""
    style = "green" if is_number(reward) and reward >= 1 else ""
    room = width - 10  # a column less than there is: terminals disagree about the width of some signs
    head = Text(f"for example, {clip(str(row['node']), NAME)}{given}", "dim", no_wrap=True, overflow="ellipsis")
    return [
        head,
        Text.assemble(("question ", "dim"), clip(str(row["prompt"]), room)),
        Text.assemble(("answer   ", "dim"), (clip(str(row["completion"]), room) or "(nothing)", style)),
    ]
