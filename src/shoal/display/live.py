"""The display in a terminal: how far the run is, the table of its nodes with a legend, and an example of an answer.

It is redrawn in place. Each line fits the width; what the height has no room for is left out, the example first.
"""

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
from shoal.display.text import clip, paragraph, plain, print_paragraph, print_warning
from shoal.runs.watcher import Watcher

FEW = 4
"""Nodes that have room before the legend and the example have."""
BAR = 56
"""Columns below which there is no bar."""
NOTE_LINES = 2
"""Of a note, and of each line on the swarm."""
LABEL = 15
"""Columns of the names before what a run has chosen (`runs.choices`)."""
HELD = 4.0
"""Seconds for which an example stays, at least: rounds may be faster than one can read."""


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
        styled = [*((line, "dim") for line in self._panel), (self._status, "cyan"), (self._note, "yellow")]
        notes = [paragraph(console, plain(*each), width, most=NOTE_LINES) for each in styled if each[0]]
        news = [line for note in notes for line in note]
        course = 0 if ascii_only else HISTORY if width >= WIDE else COURSE
        rows = node_rows(self._progress, course, "->" if ascii_only else "→")
        columns = fitting_columns(rows, width)
        meanings = paragraph(console, plain(legend(columns), "dim"), width)
        room = height - 7 - len(news)  # gap, progress, gap, names of columns, mean, gap, and the cursor's line
        below: list[Table | Text] = []
        for part in (meanings, _example(self._example, width) if self._example else []):
            if part and room - len(part) - 1 >= min(len(rows) - 1, FEW):
                below += [Text(), *part]
                room -= len(part) + 1
        table = node_table(rows, columns, width, max(1, room))
        return [Text(), self._header(width), Text(), table, *below, Text(), *news]

    def _header(self, width: int) -> Table | Text:
        progress = self._progress
        if width < BAR:
            return Text(f"{progress.count()}  {progress.times()}", "bold", no_wrap=True, overflow="ellipsis")
        grid = Table.grid(padding=(0, 2, 0, 0), expand=True)
        for ratio in (None, 1, None):
            grid.add_column(no_wrap=True, ratio=ratio)
        grid.add_row(
            Text(progress.count(), "bold"),
            ProgressBar(progress.total, progress.round, complete_style="cyan", finished_style="cyan"),
            Text(progress.times(), "dim"),
        )
        return grid


COLUMNS = {"reward": 6, "course": 0, "held-out": 11, "live": 4, "given": 5, "taken": 5, "pool": 4, "tok/s": 5}
"""Behind the nodes' names, and the least width of each, so that columns stay where they are. `course`: the rewards of
the last rounds, as bars."""
LEFT_OUT = ("tok/s", "given", "pool", "course", "live", "taken", "held-out")
"""What a narrow terminal does not show, this first."""
GAP = 2
NAME, SHORTEST = 24, 10
"""Columns of a node's name: at most, and what a longer one keeps where it is narrow."""
COURSE = 8
"""Rounds of the course in a terminal below `WIDE` columns; `HISTORY` in others."""
WIDE = 100

Rows = Mapping[str, Mapping[str, str]]
"""The figures of each node by their columns. The last row is the mean over nodes."""
MEAN = "\nmean"
"""No node is called so."""


def node_rows(progress: Progress, course: int, arrow: str) -> Rows:
    """The rows of the table, with rewards of so many rounds as bars."""
    highest = max((reward for past in progress.rewards.values() for reward in past), default=0.0)

    def row(figures: Row, held_out: Sequence[float], rewards: Sequence[float]) -> dict[str, str]:
        bars = spark(rewards[-course:], highest).ljust(course) if course else ""
        return cells(figures, held_out, arrow) | {"course": bars}

    nodes = {
        name: row(progress.last.get(name, {}), progress.held_out.get(name, []), progress.rewards.get(name, []))
        for name in progress.nodes
    }
    return nodes | {MEAN: row(progress.mean_row(), progress.mean_held_out(), progress.mean_rewards())}


def column_width(rows: Rows, name: str) -> int:
    return max(COLUMNS[name], *(len(row[name]) for row in rows.values()))


def name_width(rows: Rows, columns: Sequence[str], width: int) -> int:
    """The columns that are left for the nodes' names, up to the longest."""
    longest = max((cell_len(clip(name, NAME)) for name in rows if name != MEAN), default=0)
    return min(longest, width - sum(GAP + column_width(rows, name) for name in columns))


def fitting_columns(rows: Rows, width: int) -> list[str]:
    """The columns that have room beside the names."""
    columns = [name for name in COLUMNS if column_width(rows, name)]
    for left_out in LEFT_OUT:
        if name_width(rows, columns, width) >= min(name_width(rows, [], width), SHORTEST):
            break
        columns = [name for name in columns if name != left_out]
    return columns


def node_table(rows: Rows, columns: Sequence[str], width: int, most: int) -> Table:
    """The table with at most `most` nodes, or those that fit and a line that says how many do not."""
    table = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("node", no_wrap=True, overflow="ellipsis", width=max(4, name_width(rows, columns, width)))
    for name in columns:
        is_course = name == "course"
        table.add_column(
            "" if is_course else name,
            justify="left" if is_course else "right",
            style="cyan" if is_course else None,
            no_wrap=True,
            width=column_width(rows, name),
        )
    nodes = [name for name in rows if name != MEAN]
    shown = nodes if len(nodes) <= most else nodes[: max(1, most - 1)]
    for node in shown:
        table.add_row(plain(clip(node, NAME)), *(rows[node][name] for name in columns))
    if len(shown) < len(nodes):
        table.add_row(Text(f"{len(nodes) - len(shown)} more", "dim"))
    if len(nodes) > 1:
        table.add_row("mean", *(rows[MEAN][name] for name in columns), style="bold")
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
        Text.assemble(("question ", "dim"), clip(str(row["question"]), room)),
        Text.assemble(("answer   ", "dim"), (clip(str(row["completion"]), room) or "(nothing)", style)),
    ]
