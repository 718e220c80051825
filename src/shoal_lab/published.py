"""A report.json as a stranger may have written it: bounded, checked, never evaluated.

    report = read_published(published_file(Path("docs/studies/default")))   # a report's folder, a study's, or the file
    report.regimes["generalists"].by_seed("4/4", "held_out/final")          # {"101": 0.61, ...}

Only what `verify` recomputes, or recomputes from.
"""

from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from shoal.config.old_names import FIGURES
from shoal.errors import UserError
from shoal.untrusted import printable, read_regular

MAX_BYTES = 32 * 2**20
MAX_FIGURES = 20_000
MAX_CONTRASTS = 200

Number = Annotated[float, Field(ge=-1e30, le=1e30)]
Name = Annotated[str, Field(max_length=300)]
BySeed = Annotated[dict[Name, Number | None], Field(max_length=200)]


class Part(BaseModel):
    model_config = ConfigDict(strict=True, frozen=True, allow_inf_nan=False)


class Span(Part):
    """A figure with the ends of its 95 % interval."""

    value: Number
    low: Number
    high: Number


class Figure(Span):
    """A figure of an arm over seeds."""

    missing: int
    seeds: BySeed


class Ratio(Part):
    arm: Name
    control: Name
    trained_on: Span | None
    local: Span | None


class Spread(Part):
    """Who learned from whom in an arm."""

    first_from_others: Number | None
    mean_lag: Number | None
    followers: int
    followers_reached: int
    by_seed: dict[Name, BySeed]


class Regime(Part):
    areas_end: dict[Name, Number | None]
    shared_runs: dict[Name, Name] = {}
    """Arms whose runs are those of another arm."""
    arms: dict[Name, dict[Name, Figure | None]]
    ratios: list[Ratio]
    spread: dict[Name, Spread]

    def by_seed(self, arm: str, name: str) -> dict[str, float | None]:
        """A figure by seed; None in every seed where the report has none."""
        figures = self.arms.get(arm, {})
        figure = figures.get(name)
        return figure.seeds if figure else dict.fromkeys(next((each.seeds for each in figures.values() if each), {}))


class Contrast(Part):
    """A comparison. One that could not be made has no `p`."""

    name: Name
    regime: Name
    treated: Name
    control: Name
    figure: Name
    expect: Literal["above", "below", "equal", "unknown"]
    share: Number
    found: Name
    outcome: Name
    sentence: Annotated[str, Field(max_length=10_000)]
    relative: Span | None
    difference: Span | None = None
    mean_difference: Number | None = None
    improvement: Span | None = None
    p: Number | None = None
    adjusted_p: Number | None = None
    smallest_adjusted_p: Number | None = None
    margin: Number | None = None
    beyond_p: Number | None = None
    adjusted_beyond_p: Number | None = None


class Point(Part):
    """What an arm gains over another in a regime."""

    regime: Name
    figure: Name
    treated: Name
    control: Name
    x: Number
    value: Number | None
    low: Number | None
    high: Number | None


class Published(Part):
    """A report."""

    alpha: Annotated[float, Field(gt=0, lt=1)]
    finished: int
    seconds: Number | None
    regimes: dict[Name, Regime]
    contrasts: Annotated[list[Contrast], Field(max_length=MAX_CONTRASTS)]
    gains: dict[Name, list[Point]]
    source: dict[Name, Any]
    """A report has to name the source that made it."""


def published_file(path: Path) -> Path:
    """The report.json that `path` means."""
    places = [path / "report.json", path / "report" / "report.json"] if path.is_dir() else [path]
    for place in places:
        if place.is_file():
            return place
    raise UserError(f"{printable(str(path))}: there is no report.json, which `shoal lab report DIR` writes")


def read_report(file: Path) -> bytes:
    """A report.json, with figures by their present names."""
    data = read_regular(file, MAX_BYTES)
    for old, new in FIGURES.items():
        data = data.replace(f'"mean/{old}"'.encode(), f'"mean/{new}"'.encode())
    return data


def read_published(file: Path) -> Published:
    """Raises `UserError` for what is not a report."""
    shown = printable(str(file))
    try:
        report = Published.model_validate_json(read_report(file))
    except OSError as error:
        raise UserError(f"cannot read {shown}: {error.strerror or error}") from error
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"]))
        raise UserError(
            f"{shown} is not a report: {printable(f'{where}: ' * bool(where) + fault['msg'], 300)}"
        ) from error
    if sum(len(figures) for regime in report.regimes.values() for figures in regime.arms.values()) > MAX_FIGURES:
        raise UserError(f"{shown} has more than {MAX_FIGURES:,} figures")
    return report
