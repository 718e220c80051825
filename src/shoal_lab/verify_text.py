"""Whether the tables of a report.md are those that its report.json makes.

rows, wrong = check_tables(data, text)        # 49 rows, and those that are others
"""

from __future__ import annotations

from itertools import zip_longest
from typing import Any

from shoal_lab.report_text import markdown


def check_tables(data: dict[str, Any], text: str) -> tuple[int, list[str]]:
    """The number of rows that `text` should have, and those of both that differ. Raises `KeyError` and the like for a
    report of another version, or what is none."""
    right, given = _rows(markdown(data)), _rows(text)
    pairs = zip_longest(right, given, fillvalue="nothing")
    return len(right), [f"{row} in place of {own}" for own, row in pairs if own != row]


def _rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]
