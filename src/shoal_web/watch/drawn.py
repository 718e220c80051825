"""Drawings among answers, made safe to be shown.

    with_drawings([{"completion": '<svg viewBox="0 0 8 8"><circle r="2" onclick="..."/></svg>', ...}])
    # [{..., "drawing": '<svg ... viewBox="0 0 8 8"><circle r="2"/></svg>'}]

A page shows them as pictures, in which a browser runs nothing and fetches nothing.
"""

from __future__ import annotations

from typing import Final

from shoal.config.own_code import call_offered, offered
from shoal_web.watch.source import Data

VIEWS: Final = "shoal.views"
"""Entry points of packages that make a kind of answer safe to be shown."""
SVG: Final = "svg"


def drawing_in(text: str | None) -> str | None:
    """The drawing in a text as plain shapes; None where there is none."""
    if not text or "<svg" not in text or SVG not in offered(VIEWS):
        return None
    drawn: str | None = call_offered(VIEWS, SVG, text)
    return drawn


def with_drawings(answers: list[Data]) -> list[Data]:
    """The answers, each with its `drawing` if it is one."""
    return [answer | {"drawing": drawing_in(answer["completion"])} for answer in answers]
