"""What to do next: the last lines of a command."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Console


def print_next(console: Console, steps: Mapping[str, str]) -> None:
    """Prints commands, each with its purpose."""
    for command, purpose in steps.items():
        console.print(f"\n{purpose}:\n  {command}", markup=False, highlight=False, soft_wrap=True)
