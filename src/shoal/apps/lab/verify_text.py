"""Whether the numbers in the tables of a report.md are those of its report.json.

strangers(report, text)        # ["0.31 [0.28, 0.33]"]: cells that no figure of the report gives at three digits
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable

from shoal.apps.lab.report_cells import number
from shoal.apps.lab.verify_read import Published, Span

NUMBER = r"[+-]?\d[\d.]*(?:e[+-]?\d+)?"
CELL = re.compile(
    rf"(?:of equality )?{NUMBER}(?:×| ?%)?(?: \[[^\]]{{1,60}}\])?(?: \(\d+ of \d+ seeds\)|, of more {NUMBER}| of \d+)?"
)
OF_SEEDS = re.compile(r" \(\d+ of \d+ seeds\)$")


def numbers_of(text: str) -> list[str]:
    """The cells of all tables that are numbers."""
    rows = (line for line in text.splitlines() if line.startswith("|") and len(line) < 20_000)
    cells = (cell.strip() for row in rows for cell in row.strip("| ").split(" | "))
    return [OF_SEEDS.sub("", cell) for cell in cells if len(cell) < 200 and CELL.fullmatch(cell)]


def strangers(report: Published, cells: Iterable[str]) -> list[str]:
    """Those of the `cells` that the report does not give."""
    known = set(_cells(report))
    return [cell for cell in cells if cell not in known]


def _cells(report: Published) -> Iterable[str]:
    """Every number of a report as a table shows it, and names, which may look like numbers."""
    for name, regime in report.regimes.items():
        yield from (name, *regime.arms)
        for figure in (figure for arm in regime.arms.values() for figure in arm.values()):
            yield from _span(figure)
        for ratio in regime.ratios:
            yield from (*_span(ratio.trained_on, "×"), *_span(ratio.local, "×"), f"{ratio.paper or 0:.2f}×")
        for spread in regime.spread.values():
            yield f"{spread.followers_reached} of {spread.followers}"
            yield from (f"{spread.first_from_others or 0:.0%}", f"{spread.mean_lag or 0:.3g}")
            yield from (str(count) for counts in spread.taught.values() for *_, count in counts)
    for one in report.contrasts:
        yield from (one.name, one.title, *_span(one.relative, " %", _percent), *_span(one.improvement))
        if one.adjusted_p is not None:
            p = f"{one.adjusted_p:.3g}"
            beyond = one.beyond_p if one.adjusted_beyond_p is None else one.adjusted_beyond_p
            yield from (p, f"of equality {p}", f"of equality {p}, of more {beyond or 0:.3g}")


def _span(span: Span | None, unit: str = "", of: Callable[[float], str] = number) -> Iterable[str]:
    if span:
        yield of(span.value) + unit
        yield f"{of(span.value)}{unit} [{of(span.low)}, {of(span.high)}]"


def _percent(share: float) -> str:
    return ("+" if share > 0 else "") + number(100 * share)
