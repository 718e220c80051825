"""`shoal lab run`: all unfinished runs of a study, on all cores.

A study's folder:

    study.toml                  the study; `shoal lab run DIR` goes on with it
    bases/NAME/                 models that it made
    runs/REGIME/ARM/seed-N/     the folder of each run; a finished one has `done.json`
    report/                     what `shoal lab report DIR` writes

A finished run is never run again. A killed run goes on from its last checkpoint, if it has one. One process at a time
runs a study. Runs and models that were made with other settings than the study has now are refused.
"""

import os
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import tomli_w
from pydantic import ValidationError
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shoal.config.load import merged, refuse_code
from shoal.errors import UserError
from shoal.policy.fetch import fetch_models
from shoal.runs.disk import locked, write_atomically
from shoal.runs.folder import CONFIG
from shoal_lab.cells import DONE, run_cell
from shoal_lab.far_cells import run_on_ray
from shoal_lab.processes import Job, run_jobs
from shoal_lab.provenance import BASES, differences
from shoal_lab.recipes import RECIPE, Recipe, in_order
from shoal_lab.study import STUDY, Cell, Study, read_study

QUIET_LAB: Final[dict[str, Any]] = {"checkpoint_every": 0, "threads": 1, "round": {"workers": 0}}
"""Settings of a run, unless the study says otherwise: it is one of many, and short."""


def open_study(path: Path, out: Path | None, quick: bool, allow_code: bool = False) -> tuple[Study, Path]:
    """The study in a file or in its folder, and its folder.

    What `changed` after a first look may be new in the file. Raises `UserError` if the folder has another study, or if
    the study names code and the user does not allow it.
    """
    file = path / STUDY if path.is_dir() else path
    study = read_study(file)
    if not allow_code:
        refuse_code(study.code, str(file))
    if path.is_dir():
        if quick or (out and out != path):
            raise UserError(f"{path} has its own settings: leave out other flags, or take another --out")
        return study, path
    study = study.smaller() if quick else study
    study.base = merged(QUIET_LAB, study.base)
    folder = out or Path("lab") / (path.stem + ("-quick" if quick else ""))
    kept = folder / STUDY
    text = _text(study)
    if kept.exists() and _text(read_study(kept).model_copy(update={"changed": study.changed})) != text:
        raise UserError(f"{folder} has another study, or this one with other settings: take another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, text.encode())
    return study, folder


def _text(study: Study) -> str:
    return tomli_w.dumps(study.model_dump(mode="json", exclude_none=True, exclude_defaults=True))


def run_study(study: Study, folder: Path, console: Console, jobs: int = 0, on: str = "") -> list[str]:
    """Runs what is left of a study and returns the failures, a line each. `jobs`: processes, 0 for one a core. `on`:
    the Ray cluster that runs it instead (`shoal.parallel.cluster.connect`).

    Raises `UserError` if another process runs the study, if finished runs or models have other settings than it says
    now, or if a model cannot be made.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with closing(locked(folder)):
        return _run_left(study, folder, console, jobs or os.cpu_count() or 1, on)


def _run_left(study: Study, folder: Path, console: Console, jobs: int, on: str) -> list[str]:
    cells = study.runs()
    left = [cell for cell in cells if not (folder / cell.path / DONE).exists()]
    _refuse_others(study, folder, [cell for cell in cells if cell not in left])
    planned = [(study.config(cell, folder), folder / cell.path) for cell in left]
    for cell, (config, path) in zip(left, planned, strict=True):
        if (path / CONFIG).exists() and (changed := differences(path, config)):
            console.print(f"{cell}: begun with other settings ({changed[0]}), so it starts again", markup=False)
        fetch_models(config)
    failures: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"), console=console) as bar:
        _make_bases(study, folder, jobs, bar)
        line = bar.add_task("", total=sum(config.rounds for config, _ in planned), unit="rounds")
        rounds, finished = [0] * len(planned), len(cells) - len(left)
        work: list[Job] = [(run_cell, cell) for cell in planned]
        with closing(run_on_ray(on, study, folder, left) if on else run_jobs(work, min(jobs, len(work)))) as events:
            for event in events:
                if event.kind == "progress":
                    rounds[event.job] = event.value
                elif event.kind == "lost":
                    bar.console.print(f"{left[event.job]}: {event.value}", markup=False)
                elif event.kind == "done":
                    finished += 1
                else:
                    failures.append(f"{left[event.job]}: {event.value}")
                    bar.console.print(f"failed: {failures[-1]}", style="red", markup=False)
                bar.update(line, completed=sum(rounds), description=f"{finished} of {len(cells)} runs done")
    return failures


def _refuse_others(study: Study, folder: Path, finished: Sequence[Cell]) -> None:
    """Raises `UserError` if finished runs have other settings than the study now."""
    found = {str(folder / c.path): differences(folder / c.path, study.config(c, folder)) for c in finished}
    if others := [path for path, changed in found.items() if changed]:
        several = f" and {len(others) - 5} more" if len(others) > 5 else ""
        raise UserError(
            f"finished runs have other settings than the study now ({found[others[0]][0]}): delete "
            f"{', '.join(others[:5])}{several} to run them again, or take another --out"
        )


def _make_bases(study: Study, folder: Path, jobs: int, bar: Progress) -> None:
    """Makes the study's own models that are missing, in the order in which they need each other."""
    room = folder / BASES
    room.mkdir(parents=True, exist_ok=True)
    turns, wanted = in_order(study.bases), study.models()
    for turn in reversed(turns):  # and the bases that those start from
        wanted |= {study.bases[name].start for name in turn if name in wanted}
    for name in sorted(wanted & study.bases.keys()):
        _refuse_other_recipe(study.bases[name], room / name)
    missing = [[n for n in turn if n in wanted and not (room / n / RECIPE).exists()] for turn in turns]
    if not any(missing):
        return
    from shoal_lab.bases import make_base  # imports torch

    line = bar.add_task("making base models", total=sum(map(len, missing)), unit="models")
    for turn in missing:
        starts = [study.bases[name].start for name in turn]
        sources = [str(room / start) if start in study.bases else start or None for start in starts]
        work: list[Job] = [
            (make_base, (study.bases[name], source, room / name)) for name, source in zip(turn, sources, strict=True)
        ]
        with closing(run_jobs(work, jobs)) as events:
            for event in events:
                if event.kind == "failed":
                    raise UserError(f"base {turn[event.job]}: {event.value}")
                if event.kind == "done":
                    bar.advance(line)
                else:
                    bar.update(line, description=f"base {turn[event.job]}: {event.value}")


def _refuse_other_recipe(recipe: Recipe, path: Path) -> None:
    """Raises `UserError` if the model in `path` was made by another recipe. Settings that its recipe.json lacks have
    their defaults."""
    try:
        same = not (path / RECIPE).exists() or Recipe.model_validate_json((path / RECIPE).read_bytes()) == recipe
    except ValidationError:  # of another version of shoal
        same = False
    if not same:
        raise UserError(
            f"{path} was made by another recipe than the study has now ({RECIPE} there): delete it and the runs that "
            "started from it, or take another --out"
        )
