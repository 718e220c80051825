"""The results of a study, read from its folder. Nothing is run again.

    results = read_results(Path("studies/sharing"))
    results.runs["generalists"]["4/4"][101].rows           # regime, arm, seed
    scores(results.runs["generalists"], threshold=0.1)     # arm -> seed -> figure -> number

Unfinished runs are named in `Results.unfinished` and left out.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from shoal.apps.lab.attacks import attack_measures
from shoal.apps.lab.cells import DONE
from shoal.apps.lab.config import LabConfig
from shoal.apps.lab.measures import PASS, held_out, summary, tokens_generated
from shoal.apps.lab.provenance import differences
from shoal.apps.lab.study import STUDY, Cell, Study, read_study
from shoal.errors import UserError
from shoal.runs.folder import run_metrics
from shoal.runs.tables import LEARNED

KEPT: Final = frozenset(
    "round node reward/local reward/trained_on rollouts/wanted rollouts/refused tokens/generated tokens/trained "
    "learner/steps gradient/external external/ess external/gated".split()
)
"""Columns of metrics that the report needs, beside held-out pass@1."""
Figures = Mapping[str, float | None]


@dataclass(frozen=True)
class RunResult:
    """One finished run."""

    cell: Cell
    path: Path
    rows: list[dict[str, Any]]
    """Its metrics: the columns that the report needs."""
    nodes: list[str]
    """The nodes whose figures count (`counted_nodes`)."""
    external: int
    """J."""
    seconds: float | None
    versions: dict[str, str]
    """Of the software, if known."""
    attack: dict[str, float] = field(default_factory=dict)
    """`attacks.attack_measures`, in a study with adversaries."""
    differs: list[str] = field(default_factory=list)
    """Settings that are not as the study says now (`provenance.differences`)."""

    @property
    def own(self) -> list[dict[str, Any]]:
        """The rows of the nodes that count."""
        counted = set(self.nodes)
        return [row for row in self.rows if row["node"] in counted]

    @property
    def rounds(self) -> int:
        return max((int(row["round"]) for row in self.rows), default=0)

    @property
    def learned(self) -> Path:
        return self.path / LEARNED


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
        return [run for arms in self.runs.values() for seeds in arms.values() for run in seeds.values()]


def read_results(folder: Path) -> Results:
    """The results in the folder of a study. Raises `UserError` for a folder that is not one, or has no finished run."""
    if not (folder / STUDY).is_file():
        raise UserError(f"{folder} is not the folder of a study (it has no {STUDY})")
    study = read_study(folder / STUDY)
    runs: dict[str, dict[str, dict[int, RunResult]]] = {}
    unfinished = []
    attacked = any(study.config(cell).experiment.adversaries for cell in study.cells())
    configs: dict[tuple[str, str], LabConfig] = {}  # seeds differ in nothing that is asked of them here
    for cell in study.cells():
        config = configs.setdefault((cell.regime, cell.arm), study.config(cell))
        run = _read_run(folder, cell, config, study.arms[cell.arm].count, attacked)
        if run is None:
            unfinished.append(cell)
        else:
            run.differs.extend(differences(run.path, study.config(cell)))
            runs.setdefault(cell.regime, {}).setdefault(cell.arm, {})[cell.seed] = run
    if not runs:
        raise UserError(f"{folder}: no run is finished, so there is nothing to report; `shoal lab run` goes on")
    ordered = {  # cells go by seed, and the first seed may lack some
        regime: {arm: runs[regime][arm] for arm in study.arms if arm in runs[regime]}
        for regime in dict.fromkeys(cell.regime for cell in study.cells())
        if regime in runs
    }
    return Results(folder, study, ordered, unfinished)


def counted_nodes(config: LabConfig) -> list[str]:
    """The nodes whose figures count: the honest ones that learn; if none learns, all honest ones but contributors."""
    names = [f"node-{number}" for number in range(1, config.swarm.nodes + 1)]
    experiment = config.experiment
    honest = honest_nodes(config)[: max(0, len(names) - experiment.contributors)]
    if config.learner.learning_rate == 0:
        return honest
    return honest[: max(0, len(names) - experiment.frozen)] or honest or names


def honest_nodes(config: LabConfig) -> list[str]:
    """All nodes but adversaries."""
    swarm = config.swarm
    return [f"node-{number}" for number in range(1, max(0, swarm.nodes - config.experiment.adversaries) + 1)]


def cuts(runs: Runs) -> tuple[float | None, float | None]:
    """Where areas end: the last round, and the number of tokens of a node, that every run reaches by its last
    evaluation.

    None where no run has an evaluation, or tokens to count.
    """
    ends, spent = [], []
    for run in (run for seeds in runs.values() for run in seeds.values()):
        tokens = tokens_generated(run.own)
        for node, curve in held_out(run.own).items():
            ends.append(max(curve))
            if max(curve) in tokens[node]:
                spent.append(tokens[node][max(curve)])
    return min(ends, default=None), min(spent, default=None)


def scores(runs: Runs, threshold: float) -> dict[str, dict[int, dict[str, float | None]]]:
    """All figures of `measures.summary` for each arm and seed; areas end where the shortest run does.

    `per_round/reward/...` is the cumulative reward over the number of counted nodes and rounds.
    """
    rounds, tokens = cuts(runs)
    found: dict[str, dict[int, dict[str, float | None]]] = {}
    for arm, seeds in runs.items():
        found[arm] = {}
        for seed, run in seeds.items():
            figures = summary(run.rows, threshold=threshold, nodes=run.nodes, rounds=rounds, tokens=tokens)
            if tokens is None:  # nobody counted them: a curve along them would end where it starts
                figures["held_out/area_per_token"] = None
            for key in ("reward/local", "reward/trained_on"):
                total, parts = figures[f"cumulative/{key}"], len(run.nodes) * run.rounds
                figures[f"per_round/{key}"] = total / parts if total is not None and parts else None
            found[arm][seed] = {**figures, **run.attack}
    return found


def by_seed(figures: Mapping[int, Figures], name: str) -> dict[int, float | None]:
    """One figure of an arm by seed."""
    return {seed: each.get(name) for seed, each in figures.items()}


def known(figures: Mapping[int, Figures], name: str) -> dict[int, float]:
    """The same, without seeds that lack it."""
    return {seed: value for seed, value in by_seed(figures, name).items() if value is not None and math.isfinite(value)}


def _read_run(folder: Path, cell: Cell, config: LabConfig, counted: Sequence[str], attacked: bool) -> RunResult | None:
    """None for a run that is unfinished or cannot be read."""
    path = folder / cell.path
    try:
        done = json.loads((path / DONE).read_bytes())
        rows = [_kept(row) for row in run_metrics(path)]
    except (OSError, ValueError, UserError):
        return None
    if not isinstance(done, dict) or not rows:
        return None
    seconds = done.get("seconds")
    versions = done.get("versions")
    return RunResult(
        cell,
        path,
        rows,
        list(counted) or counted_nodes(config),
        config.swarm.external,
        float(seconds) if isinstance(seconds, int | float) else None,
        {str(k): str(v) for k, v in versions.items()} if isinstance(versions, dict) else {},
        attack_measures(path, honest_nodes(config)) if attacked else {},
    )


def _kept(row: Mapping[str, Any]) -> dict[str, Any]:
    return {sys.intern(k): v for k, v in row.items() if k in KEPT or (k.startswith(PASS) and v is not None)}
