"""Texts for a terminal: plain characters whatever stands in them, broken between words, never in the middle of one.

    print_paragraph(console, "held-out       4 questions of each task", indent=15)
    clip("What is 17 + 25? " * 20, 40)      # its beginning, …, its end

A terminal gets lines that fit. A file or a pipe gets each text as one line. Commands and paths are never broken, so
that they can be copied: print those with `soft_wrap=True`.
"""

from collections.abc import Iterable, Mapping

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from shoal.untrusted import printable

LONGEST = 10_000  # characters of a text that are looked at


def plain(text: str, style: str = "") -> Text:
    """`text` as it is, on one line, without characters that steer a terminal."""
    shown = "".join(char if char.isprintable() else "·" for char in text[:LONGEST])
    return Text(shown, style, no_wrap=True, overflow="ellipsis")


def print_paragraph(console: Console, text: Text | str, indent: int = 2) -> None:
    """Prints `text`. In a terminal, all its lines but the first begin `indent` columns further right."""
    shown = text if isinstance(text, Text) else Text(text)
    for line in paragraph(console, shown, console.width, indent) if console.is_terminal else [shown]:
        console.print(line, soft_wrap=True)


def paragraph(console: Console, text: Text, width: int, indent: int = 2, most: int = LONGEST) -> list[Text]:
    """`text` in at most `most` lines of `width` columns."""
    indent = min(indent, width // 3)
    [first, *more] = text.wrap(console, width, no_wrap=False) or [Text()]
    start = len(first) + len(text.plain[len(first) :]) - len(text.plain[len(first) :].lstrip())
    rest: Iterable[Text] = text[start:].wrap(console, width - indent, no_wrap=False) if more else []
    lines = [first, *(Text(" " * indent) + line for line in rest)]
    if len(lines) > most:
        lines[most - 1].append(" " * width)  # so that it ends with an ellipsis
        lines[most - 1].truncate(width, overflow="ellipsis")
    return lines[:most]


def print_warning(console: Console, text: str) -> None:
    """A warning, whatever stands in it: each of its lines by itself, and none is cut."""
    for at, line in enumerate(text.splitlines()):
        shown = Text(printable(f"warning: {line}" if not at else line), "bold yellow" if not at else "yellow")
        print_paragraph(console, shown, 9 if not at else 2)


def clip(text: str, width: int) -> str:
    """`text` in one line of at most `width` columns. The middle of a longer one is left out, as questions and answers
    often end with what counts."""
    shown = " ".join(printable(text, LONGEST).split())
    most = 2 * width  # characters: marks that pile up on a letter take no columns
    if cell_len(shown) <= width and len(shown) <= most:
        return shown
    if width < 12:
        return set_cell_size(shown[:most], max(0, width - 1)).rstrip() + "…"
    tail = set_cell_size(shown[: -most - 1 : -1], (width - 3) // 3)[::-1].strip()
    return f"{set_cell_size(shown[:most], width - 3 - cell_len(tail)).rstrip()} … {tail}"


def print_next(console: Console, steps: Mapping[str, str]) -> None:
    """Prints commands, each with its purpose."""
    for place, (command, purpose) in enumerate(steps.items()):
        before = "" if place else "\n"
        console.print(f"{before}{purpose}:\n  {command}", markup=False, highlight=False, soft_wrap=True)
