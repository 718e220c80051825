"""The display in a file, a pipe or a narrow terminal: a line now and then, each with something new."""

import time
from collections import deque
from collections.abc import Sequence

from rich.console import Console

from shoal.display.figures import Progress, Row, cells, legend
from shoal.display.live import COLUMNS
from shoal.display.text import plain, print_warning
from shoal.runs.watcher import Watcher

PAUSE, LONG_PAUSE = 5.0, 60.0
"""The shortest and the longest pause between two lines, in seconds. Panels are `LONG_PAUSE` apart, after the first."""
REMEMBERED = 1000  # lines that are not printed again
SHARE = 20  # the pause is the time so far divided by this, within those two bounds


class PlainDisplay(Watcher):
    """Lines: the first round, the last, and one every few seconds or minutes between them."""

    def __init__(self, progress: Progress, console: Console) -> None:
        self._progress = progress
        self._console = console
        self._said: deque[str] = deque(maxlen=REMEMBERED)
        self._activity = ""
        self._start = time.monotonic()
        self._next = self._next_status = 0.0
        self._began = False
        self._next_panel = self._start + PAUSE

    def say(self, text: str) -> None:
        self._print(text)

    def status(self, text: str) -> None:
        if not text:
            return
        activity = text.partition(" (")[0]  # behind it is how far it has come
        if activity != self._activity or time.monotonic() >= self._next_status:
            self._activity, self._next_status = activity, self._after_pause()
            self._print_news(f"{self._progress.count()}: {text}" if self._began else text)

    def update(self, rows: Sequence[Row], round: int) -> None:
        progress = self._progress
        progress.update(rows, round)
        if time.monotonic() < self._next and round < progress.total:
            return
        self._next = self._after_pause()
        if not self._began:
            self._began = True
            self._print(legend(COLUMNS))
        figures = cells(progress.mean_row(), progress.mean_held_out(), "->")
        shown = [f"{name} {value}" for name, value in figures.items() if value]
        self._print("  ".join([progress.count(), *shown, progress.times()]))

    def note(self, text: str) -> None:
        self._print_news(text)  # it may come and go with every round

    def warn(self, text: str) -> None:
        print_warning(self._console, text)

    def panel(self, lines: Sequence[str]) -> None:
        if time.monotonic() >= self._next_panel:
            self._next_panel = time.monotonic() + LONG_PAUSE
            for line in lines:
                self._print_news(f"  {line}")

    def _after_pause(self) -> float:
        """When the next line may come."""
        now = time.monotonic()
        return now + min(LONG_PAUSE, max(PAUSE, (now - self._start) / SHARE))

    def _print_news(self, text: str) -> None:
        """Prints what was not printed before."""
        if text and text not in self._said:
            self._said.append(text)
            self._print(text)

    def _print(self, text: str) -> None:
        self._console.print(plain(text), soft_wrap=True)


class QuietDisplay(Watcher):
    """Shows warnings alone."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def warn(self, text: str) -> None:
        print_warning(self._console, text)
