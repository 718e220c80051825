"""Errors that a user can mend."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """What the user asked for cannot be done. The message says what to do; the program exits with 2."""


class Stopped(Exception):  # noqa: N818 (it is no fault)
    """Somebody ended what was going on, such as an evaluation."""


def nearest(name: str, names: Iterable[str]) -> str:
    """A hint for a mistyped `name`: the nearest of `names`, else all of them if they are few."""
    known = sorted(names)
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    if near:
        return f"did you mean {near[0]!r}?"
    return f"choose from {', '.join(known)}" if len(known) <= 12 else f"there are {len(known)} others"
