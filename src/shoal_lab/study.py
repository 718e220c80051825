"""A study file: arms and regimes over seeds, with what is expected of them.

    title = "Does sharing help?"
    expect = ["4/4 is above 8/0 where success is sparse."]
    seeds = [101, 102, 103]
    figure = "held_out/area_per_update"

    [base]                          # settings of every run, as in a config.toml
    rounds = 100

    [regimes.generalists]           # settings of a regime
    policy.model = ["guppy"]

    [arms."8/0"]                    # settings of an arm; `about` is for the reader
    round = { local = 8, peers = 0 }
    [arms."4/4"]
    round = { local = 4, peers = 4 }

    [contrasts.sharing]             # named before the run
    treated = "4/4"
    control = "8/0"
    expect = "above"

A **cell** is a regime, an arm and a seed: one swarm run. Cells with the same seed have the same questions, evaluation
and starting weights in all arms. Arms with the same settings, which differ in the nodes that they `count`, share runs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import ConfigDict, Field, ValidationError, model_validator

from shoal.config.load import merged, read_config
from shoal.config.policy import GUPPY, default_learning_rate
from shoal.config.sections import Section
from shoal.errors import UserError, nearest
from shoal_lab.config import LabConfig, make_lab_config
from shoal_lab.measures import FAMILIES, metrics_frame, summary
from shoal_lab.recipes import BASE, Recipe, in_order
from shoal_lab.statistics import MOST_PAIRS

STUDY = "study.toml"
"""The study's file in its folder."""
ONLY = "main"
"""The regime of a study that names none."""


class Regime(Section):
    """Circumstances in which arms are compared: settings of runs, with words of its own."""

    model_config = ConfigDict(extra="allow", use_attribute_docstrings=True)
    about: str = ""
    """For the reader."""

    @property
    def settings(self) -> dict[str, Any]:
        return dict(self.model_extra or {})


class Arm(Regime):
    """What is compared."""

    count: list[str] = []
    """The nodes whose figures count; none: all that learn."""


class ContrastSpec(Section):
    """A comparison of two arms that is named before the run."""

    treated: str
    """An arm."""
    control: str
    """The arm it is compared with, seed by seed."""
    regimes: list[str] = []
    """Where they are compared; none: in all regimes."""
    figure: str = ""
    """A figure of `measures.summary`; none: the study's."""
    expect: Literal["above", "below", "equal", "unknown"] = "unknown"
    """What is expected of `treated`, said before the run."""
    margin: float = Field(0.05, gt=0)
    """For expect = equal: differences up to this share of the control's figure count as none."""


class Quick(Section):
    """The part of the study that --quick runs."""

    seeds: int = Field(2, ge=1)
    """How many seeds."""
    settings: dict[str, Any] = {}
    """They go over those of `base`."""


class Study(Section):
    """A study file."""

    model_config = ConfigDict(validate_assignment=False)  # its parts are checked against each other
    title: str
    """Its question, in one line."""
    about: str = ""
    """Why, in a few sentences."""
    expect: list[str] = []
    """What is expected, written before the run; the report repeats it."""
    changed: list[str] = []
    """What changed in the rules after a first look at results, a sentence each; the report has a section of them."""
    seeds: list[int] = Field(min_length=1, max_length=MOST_PAIRS)
    """Each seed is one run of each arm and regime."""
    figure: str = "held_out/area_per_update"
    """The figure of contrasts that name none (`shoal_lab.measures.summary`)."""
    base: dict[str, Any] = {}
    """Settings of every run."""
    bases: dict[str, Recipe] = {}
    """Small models made for the study, which `policy.model` names as base:NAME."""
    regimes: dict[str, Regime] = {}
    arms: dict[str, Arm] = Field(min_length=1)
    contrasts: dict[str, ContrastSpec] = {}
    quick: Quick = Quick()

    @model_validator(mode="after")
    def _agree(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed is listed twice")
        for name in (*self.regimes, *self.arms, *self.bases):
            if not re.fullmatch(r"[\w .,+=%/-]{1,60}", name) or ".." in name:
                raise ValueError(f"{name!r} cannot be a name: take letters, digits, spaces and . , + = % / - _")
        for names in (self.regimes, self.arms):
            if len({slug(name) for name in names}) < len(names):
                raise ValueError(f"two of {', '.join(names)} would have the same folder")
        for name, contrast in self.contrasts.items():
            _known([contrast.treated, contrast.control], self.arms, name)
            _known(contrast.regimes, self.regimes, name)
        figures = summary(metrics_frame([]))
        for figure in [self.figure, *(contrast.figure for contrast in self.contrasts.values() if contrast.figure)]:
            if figure not in figures and not figure.startswith(FAMILIES):
                raise ValueError(f"there is no figure {figure!r}; {nearest(figure, figures)}")
        in_order(self.bases)
        return self

    def cells(self) -> Iterator[Cell]:
        """Every cell of the study, seed by seed, so that a study that is cut short has whole seeds."""
        for seed in self.seeds:
            for regime in self.regimes or [ONLY]:
                for name, arm in self.arms.items():
                    alike = next(other for other in self.arms if self.arms[other].settings == arm.settings)
                    yield Cell(regime, name, seed, alike)

    def runs(self) -> list[Cell]:
        """The cells that are run: one for each folder."""
        return [cell for cell in self.cells() if cell.is_own]

    def config(self, cell: Cell, folder: Path | None = None) -> LabConfig:
        """The settings of a run. `folder`: the study's, with its own models. Raises `UserError` for wrong settings."""
        regime = self.regimes.get(cell.regime, Regime())
        settings: dict[str, Any] = {}
        for above in (self.base, regime.settings, self.arms[cell.arm].settings, {"seed": cell.seed}):
            settings = merged(settings, above)
        where = f"{cell.regime}, {cell.arm}"
        config = make_lab_config(settings, where)
        own = all(name == GUPPY or name.startswith(BASE) for name in config.policy.model)
        if own and config.learner.learning_rate == "auto":
            config.learner.learning_rate = default_learning_rate(GUPPY, config.policy.lora_r > 0)
        config = config.resolved()  # by the names of bases, which are the same whether or not they are made
        config.policy.model = [self._model(model, where, folder) for model in config.policy.model]
        return config

    @property
    def code(self) -> list[str]:
        """The code of the user that the study names and would run."""
        return [name for cell in self.cells() for name in self.config(cell).code] + [
            name for recipe in self.bases.values() for name in recipe.tasks.code
        ]

    def _model(self, model: str, where: str, folder: Path | None) -> str:
        """The folder of a model that the study makes; any other name stays."""
        if not model.startswith(BASE):
            return model
        name = model.removeprefix(BASE)
        if name not in self.bases:
            raise UserError(f"{where}: there is no base {name!r} in the study")
        return model if folder is None else str((folder / "bases" / name).absolute())

    def models(self) -> set[str]:
        """The models of its own that runs name."""
        named = (name for cell in self.cells() for name in self.config(cell).policy.model)
        return {name.removeprefix(BASE) for name in named if name.startswith(BASE)}

    def paired(self, contrast: ContrastSpec) -> list[str]:
        """The regimes in which two arms are compared."""
        return contrast.regimes or list(self.regimes) or [ONLY]

    def plan(self) -> Iterator[tuple[str, str, ContrastSpec]]:
        """Each contrast in each of its regimes, with its figure."""
        for name, contrast in self.contrasts.items():
            for regime in self.paired(contrast):
                yield name, regime, contrast.model_copy(update={"figure": contrast.figure or self.figure})

    def smaller(self) -> Study:
        """The part of the study that `quick` names."""
        changes = {"seeds": self.seeds[: self.quick.seeds], "base": merged(self.base, self.quick.settings)}
        return self.model_copy(update=changes)


@dataclass(frozen=True)
class Cell:
    """An arm in a regime with a seed."""

    regime: str
    arm: str
    seed: int
    runs_of: str
    """The first arm with the same settings in this regime: their run is one."""

    @property
    def is_own(self) -> bool:
        """Whether its run belongs to no earlier arm."""
        return self.arm == self.runs_of

    @property
    def path(self) -> str:
        """The folder of its run, within the study's."""
        return f"runs/{slug(self.regime)}/{slug(self.runs_of)}/seed-{self.seed}"

    def __str__(self) -> str:
        return f"{self.regime} · {self.arm} · seed {self.seed}" if self.regime != ONLY else f"{self.arm} · {self.seed}"


def read_study(path: Path) -> Study:
    """The study in a TOML file, every cell of which is a valid run. Raises `UserError` with what is wrong."""
    settings = read_config(path)
    try:
        study = Study.model_validate(settings)
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise UserError(f"{path}: {f'{where}: ' if where else ''}{fault['msg']}") from error
    for cell in study.cells():
        study.config(cell)
    return study


def _known(names: list[str], among: dict[str, Any], where: str) -> None:
    for name in names:
        if name not in among:
            raise ValueError(f"{where} names {name!r}, which is none of {', '.join(among)}")


def slug(name: str) -> str:
    """A name as part of a path; no two regimes or arms of a study share one."""
    return name.replace("/", "~").replace(" ", "_")
