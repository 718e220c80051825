"""Texts for a terminal: plain characters whatever stands in them, broken between words, never in the middle of one.

    print_paragraph(console, "held-out       4 questions of each task", indent=15)
    clip("What is 17 + 25? " * 20, 40)      # its beginning, …, its end

A terminal gets lines that fit. A file or a pipe gets each text as one line. Commands and paths are never broken, so
that they can be copied: print those with `soft_wrap=True`.
"""

from collections.abc import Mapping
from itertools import accumulate

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from shoal.untrusted import printable

LONGEST = 10_000
"""Characters of a text that are looked at."""


def plain(text: str, style: str = "") -> Text:
    """`text` as it is, on one line, without characters that steer a terminal."""
    shown = "".join(char if char.isprintable() else "·" for char in text[:LONGEST])
    return Text(shown, style, no_wrap=True, overflow="ellipsis")


def print_paragraph(console: Console, text: Text | str, indent: int = 2) -> None:
    """Prints `text`. In a terminal, all its lines but the first begin `indent` columns further right."""
    shown = text if isinstance(text, Text) else Text(text)
    if not console.is_terminal:
        console.print(shown, soft_wrap=True)
        return
    for line in paragraph(console, shown, console.width, indent):
        console.print(line, soft_wrap=True)


def paragraph(console: Console, text: Text, width: int, indent: int = 2, most: int = 0) -> list[Text]:
    """`text` in lines of `width` columns, at most `most` of them unless that is 0."""
    indent = min(indent, width // 3)
    first, *rest = text.wrap(console, width, no_wrap=False) or [Text()]
    if rest:
        behind = text[len(first.plain) :]
        behind = behind[len(behind.plain) - len(behind.plain.lstrip()) :]
        rest = [Text(" " * indent) + line for line in behind.wrap(console, width - indent, no_wrap=False)]
    lines = [first, *rest]
    for line in lines:
        line.rstrip()
    if most and len(lines) > most:
        lines = lines[:most]
        lines[-1] = Text(clip_end(lines[-1].plain + " …", width), lines[-1].style)
    return lines


def print_warning(console: Console, text: str) -> None:
    """A warning, whatever stands in it: each of its lines by itself, and none is cut."""
    for at, line in enumerate(text.splitlines()):
        shown = Text(printable(f"warning: {line}" if not at else line), "bold yellow" if not at else "yellow")
        print_paragraph(console, shown, 9 if not at else 2)


def clip(text: str, width: int) -> str:
    """`text` in one line of at most `width` columns. The middle of a longer one is left out, as questions and answers
    often end with what counts."""
    shown = " ".join(printable(text, LONGEST).split())
    if _fits(shown, width):
        return shown
    if width < 12:
        return clip_end(shown, width)
    tail = _start(shown[::-1], (width - 3) // 3)[::-1].lstrip()
    return f"{_start(shown, width - 3 - cell_len(tail)).rstrip()} … {tail}"


def clip_end(text: str, width: int) -> str:
    """`text` of at most `width` columns, with … in place of the rest."""
    return text if _fits(text, width) else f"{_start(text, max(0, width - 1)).rstrip()}…"[: max(0, width)]


def _fits(text: str, width: int) -> bool:
    return cell_len(text) <= width and len(text) <= 2 * width  # marks that pile up on a letter take no columns


def _start(text: str, width: int) -> str:
    """As much of `text` as fits."""
    ends = accumulate(cell_len(char) for char in text[: 2 * width])
    return text[: sum(end <= width for end in ends)]


def print_next(console: Console, steps: Mapping[str, str]) -> None:
    """Prints commands, each with its purpose."""
    for command, purpose in steps.items():
        console.print(f"\n{purpose}:\n  {command}", markup=False, highlight=False, soft_wrap=True)
