"""The display of `--quiet`: warnings alone."""

from __future__ import annotations

from rich.console import Console

from shoal.cli.text import print_warning
from shoal.runs.watcher import Watcher


class QuietDisplay(Watcher):
    """Shows warnings alone."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def warn(self, text: str) -> None:
        print_warning(self._console, text)
