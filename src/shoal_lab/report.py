"""The report of a study: `report.md`, `report.json`, and figures with their numbers.

    write_report(Path("studies/sharing"), console)       # -> studies/sharing/report/report.md

Nothing is run again; the same folder gives the same report.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pandas as pd
from rich.console import Console

from shoal.errors import UserError
from shoal.runs.disk import write_atomically
from shoal.untrusted import json_safe
from shoal_lab.cells import installed
from shoal_lab.contrasts import Verdict, ratios, verdicts
from shoal_lab.figures import draw_curves
from shoal_lab.report_text import markdown
from shoal_lab.results import Results, by_seed, read_results
from shoal_lab.statistics import ALPHA, iqm_interval

REPORT = "report"


def write_report(folder: Path, console: Console) -> Path:
    """Writes `folder`/report and returns its report.md. Raises `UserError` if there is nothing to report."""
    results = read_results(folder)
    study, figures = results.study, results.figures
    found = verdicts(study.plan(), figures)
    data = json_safe(gather(results, found))
    room = folder / REPORT
    try:
        room.mkdir(exist_ok=True)
        for old in (*room.glob("*.png"), *room.glob("*.csv")):  # the study may have had other arms
            old.unlink()
    except OSError as error:
        raise UserError(f"cannot write {room}: {error.strerror or error}") from error
    drawn = {regime: draw_curves(regime, runs, study, room) for regime, runs in results.runs.items()}
    data["figures"] = [{"name": name, "regime": regime, "caption": words} for regime, (name, words) in drawn.items()]
    write_atomically(room / "report.json", (json.dumps(data, indent=1, ensure_ascii=False) + "\n").encode())
    path = room / "report.md"
    write_atomically(path, markdown(data).encode())
    for verdict in found:
        console.print(f"{verdict.title}: {verdict.outcome}", markup=False, highlight=False)
    if results.unfinished:
        console.print(f"unfinished runs, left out: {len(results.unfinished)}", highlight=False)
    return path


def gather(results: Results, found: Sequence[Verdict]) -> dict[str, Any]:
    """The content of the report as plain data: `report.json`."""
    study = results.study
    own = [run for run in results.finished if run.cell.is_own]  # a run that two arms share counts once
    ran = pd.DataFrame([run.versions for run in results.finished])
    versions = {name: " and ".join(sorted(ran[name].dropna().unique())) for name in sorted(ran)}
    return study.model_dump(include={"title", "about", "expect", "changed", "seeds", "figure"}) | {
        "command": f"shoal lab run {results.folder / 'study.toml'}" + (" --allow-code" if study.code else ""),
        "alpha": ALPHA,
        "finished": len(own),
        "unfinished": [str(cell) for cell in results.unfinished if cell.is_own],
        "seconds": float(pd.Series([run.seconds for run in own]).sum()),
        "versions": {"of the runs": versions, "of the report": installed()},
        "arms": {name: arm.about for name, arm in study.arms.items()},
        "regimes": {regime: _regime(results, regime) for regime in results.runs},
        "contrasts": [contrast_data(verdict) for verdict in found],
    }


def _regime(results: Results, regime: str) -> dict[str, Any]:
    study, runs, figures = results.study, results.runs[regime], results.figures[regime]
    about = study.regimes[regime].about if regime in study.regimes else ""
    shared = {arm: next(iter(seeds.values())).cell.runs_of for arm, seeds in runs.items()}
    return regime_data(figures) | {
        "about": about,
        "rounds": {arm: max(run.rounds for run in seeds.values()) for arm, seeds in runs.items()},
        "shared_runs": {arm: of for arm, of in shared.items() if of != arm},
        "counted_nodes": {arm: len(next(iter(seeds.values())).nodes) for arm, seeds in runs.items()},
        "arms": {arm: {name: figure_data(by_seed(figures, arm, name)) for name in figures} for arm in runs},
    }


def regime_data(figures: pd.DataFrame) -> dict[str, Any]:
    """What follows from the `scores` of a regime, beside what is said of each arm."""
    ends = figures.reindex(columns=["run/end", "run/end_flops"]).min()
    return {"areas_end": dict(zip(("rounds", "flops"), ends, strict=True)), "ratios": ratios(figures)}


def figure_data(values: pd.Series) -> dict[str, Any] | None:
    """A figure of an arm over seeds; None where no seed has it."""
    known = values.dropna()
    if known.empty:
        return None
    return {**asdict(iqm_interval(known)), "missing": len(values) - len(known), "seeds": values.to_dict()}


def contrast_data(verdict: Verdict) -> dict[str, Any]:
    """A contrast and what came out."""
    spec = verdict.spec.model_dump(include={"treated", "control", "figure", "expect"}) | {"share": verdict.spec.margin}
    names = ("name", "regime", "title", "found", "outcome", "sentence")
    said = {name: getattr(verdict, name) for name in names} | {
        "relative": verdict.relative and asdict(verdict.relative)
    }
    return (asdict(verdict.contrast) if verdict.contrast else {}) | spec | said
