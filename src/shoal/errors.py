"""Errors that a user can mend."""

import difflib
import sys
from collections.abc import Iterable
from functools import cache


class UserError(Exception):
    """What the user asked for cannot be done. The message says what to do; the program exits with 2."""


class Stopped(Exception):  # noqa: N818 (it is no fault)
    """Somebody ended what was going on, such as an evaluation."""


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a mistyped `name`: the nearest of `names`, else all of them if they are few."""
    known = sorted(names)
    if not known:
        return "there is none"
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose from {', '.join(known)}" if len(known) <= 12 else f"there are {len(known)} others"


SHOWN = 200
"""Characters of another library's message that are shown. It may quote a stranger's text."""


def in_brief(error: BaseException) -> str:
    """What kind of error it is, and the beginning of what it says: for errors of other libraries. A line that ends with
    a colon says nothing without the next one."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    line = " ".join(lines[:2] if lines and lines[0].endswith(":") else lines[:1])
    return f"{type(error).__name__}: {line[:SHOWN]}" if line else type(error).__name__


def first_line(text: str) -> str:
    """The first line of a text that has anything in it; "" if there is none."""
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


@cache
def say_once(line: str) -> None:
    """Says it on standard error, once in this process."""
    print(f"shoal: {line}", file=sys.stderr, flush=True)
