"""The display of `--quiet`: warnings alone."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from shoal.cli.display.figures import Row
from shoal.cli.text import print_warning


class QuietDisplay:
    """Shows warnings alone."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None: ...

    def status(self, text: str) -> None: ...

    def update(self, rows: Sequence[Row], round: int) -> None: ...

    def example(self, row: Row) -> None: ...

    def note(self, text: str) -> None: ...

    def before(self, rows: Sequence[Row]) -> None: ...

    def warn(self, text: str) -> None:
        print_warning(self._console, text)

    def panel(self, lines: Sequence[str]) -> None: ...
