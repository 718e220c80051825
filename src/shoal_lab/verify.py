"""`shoal lab verify`: a published report, recomputed from its own figures by seed.

    verify(Path("docs/studies/default"), print)      # a line for each thing that disagrees; 1 if anything does, else 0

Recomputed, by what writes reports: every figure of every arm, ratios, contrasts with their tests and sentences,
and the tables of report.md. Curves are not: the CSV files have them over seeds. A report may be a stranger's: it is
bounded and checked, and nothing in it is run.
"""

import json
import math
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Final, Literal

import pandas as pd
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal.errors import UserError
from shoal.untrusted import json_safe, parse_json, printable, read_regular
from shoal_lab.contrasts import verdicts
from shoal_lab.report import contrast_data, figure_data, regime_data, spread_data
from shoal_lab.report_text import markdown
from shoal_lab.statistics import MOST_PAIRS
from shoal_lab.study import ContrastSpec

SHOWN: Final = 50
"""Most disagreements that are printed."""
MAX_BYTES: Final = 32 * 2**20
MAX_FIGURES: Final = 20_000

Number = Annotated[float, Field(ge=-1e30, le=1e30)]
Name = Annotated[str, Field(max_length=300)]
BySeed = Annotated[dict[int, Number | None], Field(max_length=MOST_PAIRS)]


class Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class Figure(Part):
    seeds: BySeed


class Spread(Part):
    by_seed: dict[Name, BySeed]


class Regime(Part):
    arms: dict[Name, dict[Name, Figure | None]]
    shared_runs: dict[Name, Name] = {}
    spread: dict[Name, Spread]

    def table(self) -> pd.DataFrame:
        """As `results.scores`."""
        rows: dict[tuple[str, int], dict[str, float | None]] = {}
        for arm, figures in self.arms.items():
            for name, figure in figures.items():
                for seed, value in figure.seeds.items() if figure else ():
                    rows.setdefault((arm, seed), {})[name] = value
        index = pd.MultiIndex.from_arrays([[key[n] for key in rows] for n in (0, 1)], names=["arm", "seed"])
        return pd.DataFrame(list(rows.values()), index=index, dtype=float)


class Planned(Part):
    """A contrast as it was named before the run."""

    name: Name
    regime: Name
    treated: Name
    control: Name
    figure: Name
    expect: Literal["above", "below", "equal", "unknown"]
    share: Annotated[Number, Field(gt=0)]


class Published(Part):
    """What of a report everything else follows from."""

    regimes: dict[Name, Regime]
    contrasts: Annotated[list[Planned], Field(max_length=200)]


def verify(path: Path, say: Callable[[str], None]) -> int:
    """Checks a report: its folder, that of its study, or its report.json. Returns the exit code. Raises `UserError`."""
    places = [path / "report.json", path / "report" / "report.json"] if path.is_dir() else [path]
    file = next(filter(Path.is_file, places), None)
    if file is None:
        raise UserError(f"{printable(str(path))}: there is no report.json, which `shoal lab report DIR` writes")
    report, data = read_report(file)
    again = json.loads(json.dumps(json_safe(recomputed(report))))
    checks = list(compared(data, again))
    say(f"{printable(str(file))}: {again['finished']} runs, {len(checks)} values recomputed from figures by seed")
    wrong = [line for line in checks if line]
    try:
        rows, differ = check_tables(data, read_regular(file.with_name("report.md"), 8 * 2**20).decode())
        say(f"tables of report.md: {max(0, rows - len(differ))} of {rows} rows agree")
        wrong += differ
    except (OSError, LookupError, TypeError, ValueError, AttributeError):  # none, or of another version
        say("the tables of report.md: not checked, as there is none that this report.json could make")
    for line in wrong[:SHOWN]:
        say(f"  {printable(line, 400)}")
    if len(wrong) > SHOWN:
        say(f"  and {len(wrong) - SHOWN} more")
    say(f"{len(wrong)} disagree" if wrong else "All that could be checked agrees.")
    return 1 if wrong else 0


def read_report(file: Path) -> tuple[Published, dict[str, Any]]:
    """A report.json: what it rests on, and all of it. Raises `UserError` for what is not a report."""
    shown = printable(str(file))
    try:
        text = read_regular(file, MAX_BYTES)
        report = Published.model_validate_json(text)
        data: dict[str, Any] = parse_json(text)
    except OSError as error:
        raise UserError(f"cannot read {shown}: {error.strerror or error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = "".join(f"{place}." for place in fault["loc"])[:-1]
        words = printable(f"{where}: {fault['msg']}" if where else fault["msg"], 300)
        raise UserError(f"{shown} is not a report: {words}") from error
    except ValueError as error:
        raise UserError(f"{shown} is not a report: {printable(str(error), 300)}") from error
    if sum(len(figures) for regime in report.regimes.values() for figures in regime.arms.values()) > MAX_FIGURES:
        raise UserError(f"{shown} has more than {MAX_FIGURES:,} figures")
    return report, data


def recomputed(report: Published) -> dict[str, Any]:
    """All that follows from the figures by seed, in the form of `report.gather`."""
    tables = {name: regime.table() for name, regime in report.regimes.items()}
    own = [
        tables[name].loc[[arm]].reindex(columns=["run/seconds"])["run/seconds"]
        for name, regime in report.regimes.items()
        for arm in tables[name].index.unique("arm")
        if arm not in regime.shared_runs  # a run that two arms share counts once
    ]
    plan = [
        (
            each.name,
            each.regime,
            ContrastSpec(margin=each.share, **each.model_dump(exclude={"name", "regime", "share"})),
        )
        for each in report.contrasts
    ]
    return {
        "finished": sum(map(len, own)),
        "seconds": math.fsum(seconds.sum() for seconds in own),
        "regimes": {name: _regime(regime, tables[name]) for name, regime in report.regimes.items()},
        "contrasts": [contrast_data(verdict) for verdict in verdicts(plan, tables)],
    }


def _regime(regime: Regime, table: pd.DataFrame) -> dict[str, Any]:
    arms = {arm: dict.fromkeys(figures) for arm, figures in regime.arms.items()}
    known = {
        arm: {name: figure_data(table.loc[arm][name]) for name in arms[arm] if name in table}
        for arm in table.index.unique("arm")
    }
    spread = {arm: spread_data(pd.DataFrame(each.by_seed, dtype=float)) for arm, each in regime.spread.items()}
    return regime_data(table) | {"arms": {arm: arms[arm] | known.get(arm, {}) for arm in arms}, "spread": spread}


def compared(reported: Any, found: Any, where: str = "") -> Iterator[str]:
    """For each value in `found` words on how the `reported` one differs, empty if it agrees to rounding."""
    if isinstance(found, dict):
        given = reported if isinstance(reported, dict) else {}
        for key, value in found.items():
            yield from compared(given.get(key), value, f"{where}, {key}" if where else key)
    elif isinstance(found, list):
        pairs = zip_longest(reported if isinstance(reported, list) else [], found)
        for place, (one, other) in enumerate(pairs, 1):
            yield from compared(one, other, f"{where} {place}")
    else:
        numbers = all(isinstance(value, int | float) for value in (reported, found))
        right = math.isclose(reported, found, rel_tol=1e-9, abs_tol=1e-12) if numbers else reported == found
        yield "" if right else f"{where}: {_shown(reported)} is reported, {_shown(found)} is found"


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def check_tables(data: dict[str, Any], text: str) -> tuple[int, list[str]]:
    """The number of table rows that `text` should have, and those of both that differ. Raises `KeyError` and the like
    for a report of another version, or what is none."""
    right, given = ([line for line in page.splitlines() if line.startswith("|")] for page in (markdown(data), text))
    pairs = zip_longest(right, given, fillvalue="nothing")
    return len(right), [f"{row} in place of {own}" for own, row in pairs if own != row]
