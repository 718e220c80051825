"""The results of a study, read from its folder. Nothing is run again.

    results = read_results(Path("studies/sharing"))
    results.runs["generalists"]["4/4"][101].metrics        # regime, arm, seed
    results.figures["generalists"]                         # a row for each arm and seed, a column for each figure

Unfinished runs are named in `Results.unfinished` and left out.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

import pandas as pd

from shoal.errors import UserError
from shoal.runs.folder import read_metrics
from shoal_lab.attacks import attack_measures
from shoal_lab.cells import DONE
from shoal_lab.config import LabConfig
from shoal_lab.measures import COSTS, PASS, curves, flops, held_out, metrics_frame, of_nodes, summary
from shoal_lab.study import ONLY, STUDY, Cell, Study, read_study

KEPT: Final = frozenset(
    "round node reward/local reward/trained_on rollouts/live_local rollouts/wanted rollouts/refused "
    "gradient/peers peers/ess peers/shortened eval/blind eval/shuffled".split()
).union(COSTS)
"""Columns of metrics that the report needs, beside held-out pass@1."""


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    cell: Cell
    path: Path
    metrics: pd.DataFrame
    """`measures.metrics_frame` of the columns that the report needs."""
    nodes: list[str]
    """The nodes whose figures count (`counted_nodes`)."""
    seconds: float
    """NaN where it is not known."""
    versions: dict[str, str]
    """Of the software, if known."""
    special: dict[str, float]
    """`attacks.attack_measures`, in a study with adversaries."""

    @property
    def own(self) -> pd.DataFrame:
        """The metrics of the nodes that count."""
        return of_nodes(self.metrics, self.nodes)

    @property
    def rounds(self) -> int:
        return int(self.metrics.index.get_level_values("round").max())


Runs = Mapping[str, Mapping[int, RunResult]]
"""Arm -> seed -> run."""


@dataclass(frozen=True)
class Results:
    """A study and its finished runs."""

    folder: Path
    study: Study
    runs: dict[str, dict[str, dict[int, RunResult]]]
    """Regime -> arm -> seed -> finished run, in the order of the study."""
    unfinished: list[Cell]

    @property
    def finished(self) -> list[RunResult]:
        return [run for arms in self.runs.values() for run in each_run(arms)]

    @cached_property
    def figures(self) -> dict[str, pd.DataFrame]:
        """The `scores` of each regime: tables and contrasts read these, so they end at one place."""
        return {regime: scores(runs) for regime, runs in self.runs.items()}


def each_run(runs: Runs) -> Iterable[RunResult]:
    return (run for seeds in runs.values() for run in seeds.values())


def read_results(folder: Path) -> Results:
    """The results in the folder of a study. Raises `UserError` for a folder that is not one, or has no finished run."""
    if not (folder / STUDY).is_file():
        raise UserError(f"{folder} is not the folder of a study (it has no {STUDY})")
    study = read_study(folder / STUDY)
    attacked = any(study.config(cell).experiment.adversaries for cell in study.cells())
    found = {cell: read_run(folder, study, cell, attacked) for cell in study.cells()}
    runs: dict[str, dict[str, dict[int, RunResult]]] = {}
    for regime in study.regimes or [ONLY]:
        for arm in study.arms:
            seeds = {c.seed: run for c, run in found.items() if run and (c.regime, c.arm) == (regime, arm)}
            if seeds:
                runs.setdefault(regime, {})[arm] = seeds
    if not runs:
        raise UserError(f"{folder}: no run is finished, so there is nothing to report; `shoal lab run` goes on")
    return Results(folder, study, runs, [cell for cell, run in found.items() if not run])


def counted_nodes(config: LabConfig) -> list[str]:
    """The nodes whose figures count: the honest ones that learn; if none learns, all honest ones."""
    names, roles = list(config.node_models), config.experiment
    honest = names[: max(0, len(names) - roles.adversaries)]
    if config.learner.learning_rate == 0:
        return honest
    return honest[: max(0, len(names) - roles.frozen)] or honest or names


def cuts(runs: Runs) -> tuple[float, float]:
    """Where areas end: the last round, and the number of FLOPs of a node, that every run reaches by its last
    evaluation. NaN where no run has an evaluation, or FLOPs to count."""
    ends, spent = [], []
    for run in each_run(runs):
        done = flops(run.own)
        for node, curve in curves(held_out(run.own)).items():
            ends.append(float(curve.index[-1]))
            spent += [done[node][curve.index[-1]]] if curve.index[-1] in done[node] else []
    return min(ends, default=math.nan), min(spent, default=math.nan)


def scores(runs: Runs) -> pd.DataFrame:
    """All figures of `measures.summary`, a row for each arm and seed; all end where the shortest run does.

    `per_round/reward/...` is the cumulative reward over the number of counted nodes and rounds. `run/...` is what the
    run came to, `run/end` and `run/end_flops` where its own areas could end.
    """
    rounds, compute = cuts(runs)
    found: dict[tuple[str, int], dict[str, float]] = {}
    for arm, seeds in runs.items():
        for seed, run in seeds.items():
            figures = summary(run.metrics, nodes=run.nodes, rounds=rounds, compute=compute)
            parts = len(run.nodes) * (run.rounds if math.isnan(rounds) else rounds) or math.nan
            for key in ("reward/local", "reward/trained_on"):
                figures[f"per_round/{key}"] = figures[f"cumulative/{key}"] / parts
            end, spent = cuts({arm: {seed: run}})
            came = {"run/rounds": float(run.rounds), "run/seconds": run.seconds, "run/end": end, "run/end_flops": spent}
            found[arm, seed] = figures | came | run.special
    return pd.DataFrame(list(found.values()), index=pd.MultiIndex.from_tuples(found, names=["arm", "seed"]))


def by_seed(figures: pd.DataFrame, arm: str, name: str) -> pd.Series:
    """One of the `scores` of an arm by seed; NaN where it was not measured."""
    return figures.loc[arm].reindex(columns=[name])[name]


def read_run(folder: Path, study: Study, cell: Cell, attacked: bool) -> RunResult | None:
    """The run of a cell in a study's folder. None for a run that is unfinished or cannot be read."""
    path, config = folder / cell.path, study.config(cell)
    try:
        done = json.loads((path / DONE).read_bytes())
        rows = read_metrics(path)
    except (OSError, ValueError, UserError):
        return None
    metrics = metrics_frame({key: row[key] for key in row if key in KEPT or key.startswith(PASS)} for row in rows)
    if metrics.empty:
        return None
    honest = list(config.node_models)[: config.round.nodes - config.experiment.adversaries]
    return RunResult(
        cell,
        path,
        metrics,
        nodes=list(study.arms[cell.arm].count) or counted_nodes(config),
        seconds=done.get("seconds", math.nan),
        versions=done.get("versions", {}),
        special=attack_measures(path, honest) if attacked else {},
    )
