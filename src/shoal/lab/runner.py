"""`shoal lab run`: all runs of a study that are not finished yet, on all cores, one GPU or a cluster.

A study's folder:

    study.toml          the study as it is run; `shoal lab run DIR` goes on with it
    bases/NAME/         models that it made
    runs/REGIME/ARM/seed-N/     the folder of each run; one with `done.json` is finished
    report/             what `shoal lab report DIR` makes of them

What is finished is never run again. A run that was killed goes on from its last checkpoint, if it has any.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import tomli_w
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from shoal.config import GUPPY, Config
from shoal.errors import UserError
from shoal.flags import merged
from shoal.folder import write_atomically
from shoal.lab.bases import BASE, in_order, make_base
from shoal.lab.cells import DONE, alike, run_cell, run_together
from shoal.lab.cluster import run_on_ray
from shoal.lab.processes import Event, Job, run_jobs
from shoal.lab.study import ContrastSpec, Gain, Study, read_study

STUDY: Final = "study.toml"
QUIET_LAB: Final[dict[str, Any]] = {"checkpoint_every": 0, "threads": 1, "swarm": {"workers": 0}}
"""What a run of a study has, unless the study says otherwise: it is one of many, and short."""


def open_study(path: Path, out: Path | None, given: dict[str, Any], quick: bool) -> tuple[Study, Path]:
    """The study in a file or in a folder that was begun, with what is `given` over all its settings, and its folder.

    Raises `UserError` if the folder has another study.
    """
    file = path / STUDY if path.is_dir() else path
    study = read_study(file)
    if path.is_dir():
        if given or quick or (out and out != path):
            raise UserError(f"{path} was begun with its own settings; leave other flags away, or take another --out")
        return study, path
    study = study.smaller() if quick else study
    study.base = merged(QUIET_LAB, study.base)
    study = overruled(study, given)
    for cell in study.cells():
        study.config(cell)
    folder = out or Path("lab") / (path.stem + ("-quick" if quick else ""))
    text = tomli_w.dumps(study.model_dump(mode="json", exclude_none=True, exclude_defaults=True))
    kept = folder / STUDY
    if kept.exists() and kept.read_text(encoding="utf-8") != text:
        raise UserError(f"{folder} has another study, or this one with other settings; take another --out")
    folder.mkdir(parents=True, exist_ok=True)
    write_atomically(kept, text.encode())
    return study, folder


def overruled(study: Study, given: dict[str, Any]) -> Study:
    """The study with `given` settings over those of every run. Regimes whose models another model replaces are one
    regime then: the first of them stays."""
    if not given:
        return study
    study = study.model_copy(deep=True)
    if "model" in given.get("policy", {}):
        own = [name for name, regime in study.regimes.items() if regime.settings.get("policy", {}).get("model")]
        for name in own[1:]:
            del study.regimes[name]
        for arm in study.arms.values():
            arm.regimes = [name for name in arm.regimes if name in study.regimes]
        compared: list[ContrastSpec | Gain] = [*study.contrasts.values(), *study.gains.values()]
        for each in compared:
            each.regimes = [name for name in each.regimes if name in study.regimes]
        study.bases = {}
    for section in (*study.arms.values(), *study.regimes.values()):
        for name, value in merged(section.settings, _overlap(given, section.settings)).items():
            setattr(section, name, value)
    study.base = merged(study.base, given)
    return study


def _overlap(given: dict[str, Any], settings: dict[str, Any]) -> dict[str, Any]:
    """What of `given` would be hidden by `settings`."""
    found: dict[str, Any] = {}
    for name, value in given.items():
        if name not in settings:
            continue
        if isinstance(value, dict) and isinstance(settings[name], dict):
            found[name] = _overlap(value, settings[name])
        else:
            found[name] = value
    return found


def run_study(
    study: Study, folder: Path, console: Console, jobs: int = 0, together: int = 0, ray: str | None = None
) -> list[str]:
    """Runs what is left and returns what failed, a line each. `jobs`: processes, 0 for one a core. `together`: runs in
    one batched program; 0 for 8 where there is a GPU and for one elsewhere. `ray`: the address of a cluster."""
    jobs = jobs or os.cpu_count() or 1
    cells = list(study.cells())
    left = [cell for cell in cells if not (folder / cell.path / DONE).exists()]
    failures: list[str] = []
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[unit]}"))
    with Progress(*columns, TimeElapsedColumn(), TimeRemainingColumn(), TextColumn("left"), console=console) as bar:
        _make_bases(study, folder, jobs, bar)
        planned = [(study.config(cell, folder), folder / cell.path) for cell in left]
        total = sum(config.rounds for config, _ in planned)
        line = bar.add_task(f"{len(cells) - len(left)} of {len(cells)} runs done", total=total, unit="rounds")
        events, groups = _events(planned, folder, jobs, together, ray)
        rounds = [0] * len(planned)
        finished = len(cells) - len(left)
        with closing(events):
            for event in events:
                group = groups[event.job]
                if event.kind == "progress":
                    number, round = event.value if isinstance(event.value, tuple) else (0, event.value)
                    rounds[group[number]] = round
                elif event.kind == "done":
                    finished += len(group)
                else:
                    failures += [f"{left[number]}: {event.value}" for number in group]
                    bar.console.print(f"failed: {failures[-1]}", style="red", markup=False)
                bar.update(line, completed=sum(rounds), description=f"{finished} of {len(cells)} runs done")
    return failures


def _events(
    planned: Sequence[tuple[Config, Path]], folder: Path, jobs: int, together: int, ray: str | None
) -> tuple[Generator[Event, None, None], list[list[int]]]:
    """What happens as all is run, and which runs each job has."""
    singly = [[number] for number in range(len(planned))]
    if ray:
        return run_on_ray(ray, planned, folder / "bases"), singly
    together = together or (8 if _has_gpu() else 1)
    if together == 1:
        work: list[Job] = [(run_cell, (config, path)) for config, path in planned]
        return run_jobs(work, min(jobs, max(len(work), 1)), 1), singly
    groups = []
    for group in alike([config for config, _ in planned]):
        groups += [group[start : start + together] for start in range(0, len(group), together)]
    work = [(_run_group, ([planned[number] for number in group],)) for group in groups]
    return run_jobs(work, 1, os.cpu_count() or 1), groups


def _run_group(cells: Sequence[tuple[Config, Path]], tell: Any) -> None:
    run_together(cells, lambda number, round: tell((number, round)))


def _make_bases(study: Study, folder: Path, jobs: int, bar: Progress) -> None:
    """The study's own models that are missing, those that need no other first."""
    try:
        turns = in_order(study.bases)
    except ValueError as error:
        raise UserError(str(error)) from error
    room = folder / "bases"
    room.mkdir(parents=True, exist_ok=True)
    used = {model for cell in study.cells() for model in study.config(cell).policy.model}
    wanted = {name for name in study.bases if f"{BASE}{name}" in used}
    for turn in reversed(turns):  # and what those start from
        wanted |= {study.bases[name].start for name in turn if name in wanted}
    missing = [[n for n in turn if n in wanted and not (room / n / "recipe.json").exists()] for turn in turns]
    if not any(missing):
        return
    line = bar.add_task("making base models", total=sum(map(len, missing)), unit="models")
    for turn in missing:
        work: list[Job] = []
        for name in turn:
            start = study.bases[name].start
            source = None if not start else start if start == GUPPY else str(room / start)
            work.append((make_base, (study.bases[name], source, room / name)))
        for event in run_jobs(work, jobs, 1):
            if event.kind == "failed":
                raise UserError(f"base {turn[event.job]}: {event.value}")
            if event.kind == "done":
                bar.advance(line)


def _has_gpu() -> bool:
    """Whether torch would find one, by its device file: torch takes seconds to import."""
    return Path("/dev/nvidiactl").exists()
