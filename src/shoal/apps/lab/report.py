"""The report of a study: `report.md`, `report.json`, and figures with their numbers.

    write_report(Path("studies/sharing"), console)       # -> studies/sharing/report/report.md

Nothing is run again; the same folder gives the same report.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

from shoal.apps.lab import figures_held_out, figures_reward
from shoal.apps.lab.cells import installed
from shoal.apps.lab.drawing import Picture, save
from shoal.apps.lab.figures_gain import Point, draw_gains, points
from shoal.apps.lab.intervals import Interval, iqm_interval
from shoal.apps.lab.report_contrasts import Verdict, ratios, verdicts
from shoal.apps.lab.report_text import markdown
from shoal.apps.lab.results import Figures, Results, RunResult, by_seed, cuts, known, read_results, scores
from shoal.apps.lab.spread import first_live, followers, foreign_share, read_learned, taught
from shoal.errors import UserError
from shoal.runs.atomic import write_atomically
from shoal.untrusted import json_safe

REPORT = "report"


def write_report(folder: Path, console: Console) -> Path:
    """Writes `folder`/report and returns its report.md. Raises `UserError` if there is nothing to report."""
    results = read_results(folder)
    found = verdicts(results)
    gains = {name: points(results, gain) for name, gain in results.study.gains.items()}
    data = gather(results, found, gains)
    room = folder / REPORT
    try:
        room.mkdir(exist_ok=True)
        for old in (*room.glob("*.png"), *room.glob("*.csv")):  # the study may have had other arms
            old.unlink()
    except OSError as error:
        raise UserError(f"cannot write {room}: {error.strerror or error}") from error
    data["figures"] = []
    for picture in pictures(results, gains):
        save(picture, room)
        data["figures"].append({"name": picture.name, "regime": picture.regime, "caption": picture.caption})
    write_atomically(room / "report.json", (json.dumps(json_safe(data), indent=1, ensure_ascii=False) + "\n").encode())
    path = room / "report.md"
    write_atomically(path, json_safe(markdown(data)).encode())
    for verdict in found:
        console.print(f"{verdict.title}: {verdict.outcome}", markup=False, highlight=False)
    if results.unfinished:
        console.print(f"unfinished runs, left out: {len(results.unfinished)}", highlight=False)
    return path


def pictures(results: Results, gains: Mapping[str, Sequence[Point]]) -> Iterator[Picture]:
    """All figures, those about all regimes first."""
    study = results.study
    drawn = [draw_gains({name: (study.gains[name], found) for name, found in gains.items()})]
    drawn.append(figures_held_out.spread(results))
    for regime, runs in results.runs.items():
        drawn += [
            figures_held_out.curves(regime, runs, study),
            figures_reward.by_node(regime, runs, study),
            figures_reward.moving(regime, runs, study),
            figures_reward.against(regime, runs, study),
        ]
    return (picture for picture in drawn if picture is not None)


def gather(results: Results, found: Sequence[Verdict], gains: Mapping[str, Sequence[Point]]) -> dict[str, Any]:
    """The content of the report as plain data: `report.json`."""
    study = results.study
    seconds = [run.seconds for run in results.finished if run.seconds is not None]
    return {
        "title": study.title,
        "about": study.about,
        "expect": study.expect,
        "command": f"shoal lab run {results.folder / 'study.toml'}",
        "seeds": study.seeds,
        "figure": study.figure,
        "threshold": study.threshold,
        "alpha": study.alpha,
        "finished": len(results.finished),
        "unfinished": [str(cell) for cell in results.unfinished],
        "differs": {str(run.cell): run.differs for run in results.finished if run.differs},
        "seconds": sum(seconds),
        "versions": {"of the runs": _versions(results.finished), "of the report": installed()},
        "arms": {name: arm.about for name, arm in study.arms.items()},
        "regimes": {regime: _regime(results, regime) for regime in results.runs},
        "contrasts": [_contrast(verdict) for verdict in found],
        "gains": {name: [asdict(point) for point in found] for name, found in gains.items()},
    }


def _regime(results: Results, regime: str) -> dict[str, Any]:
    study, runs = results.study, results.runs[regime]
    figures = scores(runs, study.threshold)
    rounds, tokens = cuts(runs)
    about = study.regimes[regime].about if regime in study.regimes else ""
    return {
        "about": about,
        "areas_end": {"rounds": rounds, "tokens": tokens},
        "rounds": {arm: max(run.rounds for run in seeds.values()) for arm, seeds in runs.items()},
        "counted_nodes": {arm: len(next(iter(seeds.values())).nodes) for arm, seeds in runs.items()},
        "arms": {arm: {name: _figure(each, name) for name in _names(each)} for arm, each in figures.items()},
        "ratios": [asdict(ratio) for ratio in ratios(figures)],
        "spread": {arm: _spread(seeds, study.threshold) for arm, seeds in runs.items()},
    }


def _names(figures: Mapping[int, Figures]) -> list[str]:
    return list(dict.fromkeys(name for each in figures.values() for name in each))


def _figure(figures: Mapping[int, Figures], name: str) -> dict[str, Any] | None:
    """A figure of an arm over seeds; None where no seed has it."""
    values = known(figures, name)
    if not values:
        return None
    interval = _interval(iqm_interval(list(values.values())))
    return {**interval, "missing": len(figures) - len(values), "seeds": by_seed(figures, name)}


def _spread(runs: Mapping[int, RunResult], threshold: float) -> dict[str, Any]:
    """Who learned from whom, run by run; shares and lags are means over runs."""
    shares, late, counts = [], [], {}
    for seed, run in runs.items():
        late.append(followers(run.own, threshold))
        table = read_learned(run.learned)
        if table is None:
            continue
        share = foreign_share(first_live(table, run.nodes))
        shares += [share] if share is not None else []
        counts[seed] = [[maker, node, count] for (maker, node), count in taught(table, run.nodes).items()]
    lags = [each.mean_lag for each in late if each.mean_lag is not None]
    return {
        "first_from_others": sum(shares) / len(shares) if shares else None,
        "followers": sum(each.pairs for each in late),
        "followers_reached": sum(each.reached for each in late),
        "mean_lag": sum(lags) / len(lags) if lags else None,
        "taught": counts,
    }


def _contrast(verdict: Verdict) -> dict[str, Any]:
    contrast = verdict.contrast
    said: dict[str, Any] = {
        "name": verdict.name,
        "regime": verdict.regime,
        "title": verdict.title,
        "treated": verdict.spec.treated,
        "control": verdict.spec.control,
        "figure": verdict.figure,
        "expect": verdict.spec.expect,
        "share": verdict.spec.margin,
        "found": verdict.found,
        "outcome": verdict.outcome,
        "sentence": verdict.sentence,
        "relative": _interval(verdict.relative),
        "by_seed": verdict.scores,
    }
    if contrast is not None:
        said |= {key: value for key, value in asdict(contrast).items() if key not in said}
    return said


def _interval(interval: Interval | None) -> Any:
    return asdict(interval) if interval is not None else None


def _versions(runs: list[RunResult]) -> dict[str, str]:
    """Versions of the software of all runs."""
    found: dict[str, set[str]] = {}
    for run in runs:
        for name, version in run.versions.items():
            found.setdefault(name, set()).add(version)
    return {name: " and ".join(sorted(versions)) for name, versions in sorted(found.items())}
