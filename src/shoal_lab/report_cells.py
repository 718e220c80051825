"""Numbers, intervals and tables as the text of a report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any
from urllib.parse import quote


def number(value: float) -> str:
    """Three digits, or all before the point up to ten millions."""
    if 100 <= abs(value) < 1e7:
        return f"{value:.0f}"
    return "0" if abs(value) < 1e-9 else f"{value:.3g}"  # sums in another order leave a little


def cell(interval: dict[str, Any] | None, unit: str = "", seeds: int = 2) -> str:
    """A figure with its interval, which one seed does not have."""
    if interval is None:
        return "–"
    if seeds < 2:
        return number(interval["value"]) + unit
    return f"{number(interval['value'])}{unit} [{number(interval['low'])}, {number(interval['high'])}]"


def percent(interval: dict[str, Any] | None) -> str:
    if interval is None:
        return "–"
    value, low, high = (_signed(100 * interval[end]) for end in ("value", "low", "high"))
    return f"{value} %" if low == high else f"{value} % [{low}, {high}]"


def _signed(value: float) -> str:
    return f"+{number(value)}" if value > 0 else number(value)


def duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} seconds"
    return f"{seconds / 60:.0f} minutes" if seconds < 7200 else f"{seconds / 3600:.1f} hours"


def some(names: Sequence[str], most: int = 12) -> str:
    return ", ".join(names[:most]) + (f", and {len(names) - most} more (report.json)" if len(names) > most else "")


def ordered(names: Iterable[str]) -> list[str]:
    """node-2 before node-10."""
    return sorted(names, key=lambda name: (len(name), name))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(each.replace("|", "\\|") for each in line) + " |" for line in lines)


def picture_text(picture: dict[str, Any]) -> str:
    name = quote(picture["name"])
    return f"![{picture['name']}]({name}.png)\n\n{picture['caption']} [Numbers]({name}.csv)"
