"""What a run shows while it goes: a live table in a terminal, or a line now and then in a file or a pipe.

    with make_display(Console(), total_rounds=60, nodes=["ada", "bob"]) as display:
        display.status("loading models")
        display.update(rows, round)        # the metrics of all nodes in this round
        display.note("fewer than J live rollouts: 2 of 4")

Both are a `Watcher` (`runs.record`). Names may come from strangers, so nothing is read as markup.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from threading import RLock
from typing import Any, Self, TypeGuard

from rich.console import Console, ConsoleOptions, RenderResult
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from shoal.cli.before_after import print_before
from shoal.config.settings import ENDLESS
from shoal.runs.pace import Pace
from shoal.untrusted import printable

Row = Mapping[str, Any]

HISTORY = 24
"""Rounds in a sparkline."""
PAUSE = 5.0
"""Seconds between two lines of `PlainDisplay`, at least."""
SOON = 60.0
"""Seconds to the end, below which nobody needs a forecast."""
PANEL_PAUSE = 60.0
"""Seconds between two of its reports on the swarm, at least."""
LEGEND = (
    "live: rollouts whose rewards differ, so that there is something to learn; given: rollouts sent; "
    "taken: others' rollouts learned from, of J; pool: others' rollouts kept"
)
LEGEND_LINES = 3
"""Lines of the legend and the gap above it, in 80 columns."""


def make_display(
    console: Console, total_rounds: int, nodes: Sequence[str], history: Sequence[Row] = (), every: int = 0
) -> LiveDisplay | PlainDisplay:
    """The display that fits `console`. `history`: the metrics of earlier rounds, if a run is resumed. `every`: rounds
    between evaluations, 0: only at the start and the end."""
    kind = LiveDisplay if console.is_interactive else PlainDisplay
    return kind(total_rounds, nodes, console, history, every)


class LiveDisplay:
    """A table that is redrawn in place: a row for each node, and one for their mean."""

    def __init__(
        self, total_rounds: int, nodes: Sequence[str], console: Console, history: Sequence[Row] = (), every: int = 0
    ) -> None:
        self._progress = Progress(total_rounds, nodes, history, every)
        self._status = self._note = ""
        self._panel: list[str] = []
        self._lock = RLock()  # a thread of its own draws
        self._live = Live(self, console=console, refresh_per_second=4)

    def __enter__(self) -> Self:
        self._live.start(refresh=True)
        return self

    def __exit__(self, *exception: object) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        self._live.console.print(plain(text, "dim"), soft_wrap=True)

    def status(self, text: str) -> None:
        with self._lock:
            self._status = text

    def update(self, rows: Sequence[Row], round: int) -> None:
        with self._lock:
            self._status = ""
            self._progress.update(rows, round)
        if said := self._progress.forecast():
            self.say(said)

    def note(self, text: str) -> None:
        with self._lock:
            self._note = text

    def before(self, rows: Sequence[Row]) -> None:
        with self._lock:
            print_before(self._live.console, rows)

    def warn(self, text: str) -> None:
        """Prints it above the table, where it stays."""
        with self._lock:
            print_warning(self._live.console, text)

    def panel(self, lines: Sequence[str]) -> None:
        with self._lock:
            self._panel = list(lines)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        with self._lock:
            yield self._header()
            yield Text()
            yield self._table(
                options.max_width, console.size.height - 8 - LEGEND_LINES - len(self._panel), options.ascii_only
            )
            yield Text()
            yield Text(LEGEND, "dim", no_wrap=False, overflow="fold")
            for line in self._panel:
                yield plain(line, "dim")
            words = [(self._status, "cyan"), (self._note, "yellow")]
            yield Text("  ").join(plain(text, style) for text, style in words if text)

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

    def _table(self, width: int, height: int, ascii_only: bool) -> Table:
        progress, wide = self._progress, width >= 100
        table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
        sparks = 0 if ascii_only else HISTORY if wide else 8
        table.add_column("node", no_wrap=True, overflow="ellipsis", max_width=24 if wide else 10)
        table.add_column("reward", justify="right", no_wrap=True)
        table.add_column("", style="cyan", no_wrap=True, min_width=sparks)
        for name in ("   held-out", "live", "given", "taken", "pool", "tokens/s" if wide else "tok/s"):
            table.add_column(
                name, justify="right", no_wrap=True, min_width=len(name)
            )  # so that columns keep their width

        highest = max((reward for past in progress.rewards.values() for reward in past), default=0.0)

        def line(name: Text, row: Row, rewards: Sequence[float], held_out: Sequence[float]) -> None:
            picture = spark(rewards[-sparks:], highest) if sparks else ""
            reward, *others = cells(row, held_out, "->" if ascii_only else "→")
            table.add_row(name, reward, picture, *others)

        # All of them, or those that fit and a line that says how many do not.
        shown = progress.nodes[: height if len(progress.nodes) <= height else max(1, height - 1)]
        for node in shown:
            past, held_out = progress.rewards.get(node, []), progress.held_out.get(node, [])
            line(plain(node), progress.last.get(node, {}), past, held_out)
        if len(shown) < len(progress.nodes):
            table.add_row(Text(f"{len(progress.nodes) - len(shown)} more", "dim"))
        if len(progress.nodes) > 1:
            line(Text("mean"), progress.mean_row(), progress.mean_rewards(), progress.mean_held_out())
            table.rows[-1].style = "bold"
        return table


class PlainDisplay:
    """Lines for a file or a pipe: the first round, the last, and one every few seconds between them."""

    def __init__(
        self, total_rounds: int, nodes: Sequence[str], console: Console, history: Sequence[Row] = (), every: int = 0
    ) -> None:
        self._progress = Progress(total_rounds, nodes, history, every)
        self._console = console
        self._notes: set[str] = set()
        self._activity = ""
        self._next = self._next_status = 0.0
        self._began = False
        self._next_panel = time.monotonic() + PAUSE

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        pass

    def say(self, text: str) -> None:
        self._print(text)

    def status(self, text: str) -> None:
        if not text:
            return
        activity = text.partition(" (")[0]  # behind it is how far it has come
        if activity != self._activity or time.monotonic() >= self._next_status:
            self._activity, self._next_status = activity, time.monotonic() + PAUSE
            self._print(text)

    def update(self, rows: Sequence[Row], round: int) -> None:
        progress = self._progress
        progress.update(rows, round)
        if said := progress.forecast():
            self.say(said)
        if time.monotonic() < self._next and round < progress.total:
            return
        self._next = time.monotonic() + PAUSE
        if not self._began:
            self._began = True
            self._print(LEGEND)
        names = ("reward", "held-out", "live", "given", "taken", "pool", "tokens/s")
        values = cells(progress.mean_row(), progress.mean_held_out(), "->")
        figures = [f"{name} {value}" for name, value in zip(names, values, strict=True) if value]
        self._print("  ".join([progress.count(), *figures, progress.times()]))

    def note(self, text: str) -> None:
        if text and text not in self._notes:  # it may come and go with every round
            self._notes.add(text)
            self._print(text)

    def before(self, rows: Sequence[Row]) -> None:
        print_before(self._console, rows)

    def warn(self, text: str) -> None:
        print_warning(self._console, text)

    def panel(self, lines: Sequence[str]) -> None:
        if time.monotonic() >= self._next_panel:
            self._next_panel = time.monotonic() + PANEL_PAUSE
            for line in lines:
                self._print(f"  {line}")

    def _print(self, text: str) -> None:
        self._console.print(plain(text), soft_wrap=True)


class QuietDisplay:
    """Shows warnings alone."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...

    def update(self, rows: Sequence[Row], round: int) -> None: ...

    def note(self, text: str) -> None: ...

    def before(self, rows: Sequence[Row]) -> None: ...

    def warn(self, text: str) -> None:
        print_warning(self._console, text)

    def panel(self, lines: Sequence[str]) -> None: ...


class Progress:
    """What the displays show: the round, the time, and for each node its last metrics and its history."""

    def __init__(self, total_rounds: int, nodes: Iterable[str], history: Iterable[Row], every: int = 0) -> None:
        self.total = total_rounds
        self.nodes = list(nodes)
        self.round = 0
        self.last: dict[str, Row] = {}
        self.rewards: dict[str, list[float]] = {}
        self.held_out: dict[str, list[float]] = {}
        """Held-out pass@1 of each node: the first and, if there are several, the last."""
        self._start = time.monotonic()
        self._last: float | None = None
        self._pace = Pace(total_rounds, every)
        self._is_told = False
        for row in history:
            self.round = row["round"]
            self._take(row)

    def update(self, rows: Sequence[Row], round: int) -> None:
        self.round = round
        now, before = time.monotonic(), self._last
        self._last = now
        if before is not None:  # else it is not known when the round began
            evaluating, saving = (_seconds(rows, what) for what in ("evaluate", "checkpoint"))
            self._pace.took(round, now - before, evaluating, saving)
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        node = row["node"]
        if node not in self.nodes:
            self.nodes.append(node)
        self.last[node] = row
        if is_number(reward := row.get("reward/local")):
            self.rewards[node] = [*self.rewards.get(node, []), reward][-HISTORY:]
        if is_number(held_out := row.get("eval/pass@1")):
            self.held_out[node] = [*self.held_out.get(node, [])[:1], held_out]

    def mean_row(self) -> dict[str, float]:
        """The mean of each figure, over the nodes that have it."""
        keys = {key for row in self.last.values() for key in row}
        values = {key: [row[key] for row in self.last.values() if is_number(row.get(key))] for key in keys}
        return {key: fmean(numbers) for key, numbers in values.items() if numbers}

    def mean_rewards(self) -> list[float]:
        """The mean over the nodes, in each of the last rounds."""
        pasts = self.rewards.values()
        longest = max(map(len, pasts), default=0)
        return [fmean(past[-at] for past in pasts if len(past) >= at) for at in range(longest, 0, -1)]

    def mean_held_out(self) -> list[float]:
        known = self.held_out.values()
        ends = (0, -1) if any(len(values) > 1 for values in known) else (0,)
        return [fmean(values[end] for values in known) for end in ends if known]

    def count(self) -> str:
        """The round, and the number of rounds if there is an end."""
        return f"round {self.round}" + (f"/{self.total}" if self.total < ENDLESS else "")

    def times(self) -> str:
        """The time since the start and, at the pace of the last rounds, the time that is left."""
        elapsed = f"{clock(time.monotonic() - self._start)} elapsed"
        left = self._left()
        return elapsed if left is None else f"{elapsed}, {clock(left)} left"

    def forecast(self) -> str:
        """Once, when it is known and long: how long the run takes."""
        left = self._left()
        if left is None or left < SOON or self._is_told:
            return ""
        self._is_told = True
        return f"about {max(1, round(left / 60))} min to the end, at the pace of this round"

    def _left(self) -> float | None:
        """Seconds; None if unknown, at the end, and without an end."""
        if self.round >= self.total or self.total >= ENDLESS or self._last is None or self._pace.left is None:
            return None
        return max(0.0, self._pace.left - (time.monotonic() - self._last))


def _seconds(rows: Sequence[Row], what: str) -> float:
    """What a round's rows say of a part of all its nodes together."""
    values = [row.get(f"seconds/{what}") for row in rows]
    return max((value for value in values if is_number(value)), default=0.0)


def cells(row: Row, held_out: Sequence[float], arrow: str) -> list[str]:
    """The figures of a row, as shown; "" for those that it lacks."""

    def count(key: str) -> str:
        value = row.get(key)
        return f"{value:.{0 if value >= 99.95 else 1}f}".removesuffix(".0") if is_number(value) else ""

    reward = row.get("reward/local")
    taken = "/".join(filter(None, (count("rollouts/sampled"), count("rollouts/wanted"))))
    tokens = sum(row.get(f"tokens/{what}") or 0 for what in ("generated", "trained"))
    seconds = sum(row.get(f"seconds/{what}") or 0 for what in ("generate", "score", "learn"))
    return [
        f"{reward:.2f}" if is_number(reward) else "",
        arrow.join(f"{100 * value:.1f}" for value in held_out) + ("%" if held_out else ""),
        count("rollouts/live_local"),
        count("rollouts/shared"),
        taken,
        count("rollouts/pool"),
        short(tokens / seconds) if seconds and row.get("tokens/generated") is not None else "",
    ]


def spark(values: Sequence[float], highest: float) -> str:
    """`values` as bars, from the lowest at 0 to the full height at `highest`."""
    bars = "▁▂▃▄▅▆▇█"
    scale = (len(bars) - 1) / highest if highest > 0 else 0.0
    return "".join(bars[round(max(0.0, value) * scale)] for value in values)


def short(number: float) -> str:
    """A positive number in at most four characters and a unit: 870, 8.7k, 87k, 8.7M."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.1f}{unit}" if unit and number < 9.95 else f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}G"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def print_warning(console: Console, text: str) -> None:
    """A warning, whatever stands in it: each of its lines by itself, and none is cut."""
    for at, line in enumerate(text.splitlines()):
        console.print(Text(printable(f"warning: {line}" if not at else line), "bold yellow" if not at else "yellow"))


def plain(text: str, style: str = "") -> Text:
    """`text` as it is, on one line, without characters that steer a terminal."""
    shown = "".join(char if char.isprintable() else "·" for char in text)
    return Text(shown, style, no_wrap=True, overflow="ellipsis")


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
