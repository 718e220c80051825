"""The trackers that a run reports to, and how each shows rollouts. Accelerate has what is common to them."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Final

import msgspec

from shoal.runs.tracker_messages import Begin, Memory, Report
from shoal.runs.tracker_rows import COLUMNS, TrackedRollout

PROJECT: Final = "shoal"
"""The project, where the tracker's own variable of the environment names none."""
BATCH: Final = 1000
"""Metrics that mlflow takes at once."""


class Target:
    """A tracker of accelerate's. Subclasses say how it is made, and how it shows rollouts."""

    project = "MLFLOW_EXPERIMENT_NAME"
    """The variable of the environment that names the project."""

    def __init__(self, begin: Begin, memory: Memory) -> None:
        from accelerate import PartialState
        from accelerate.tracking import LOGGER_TYPE_TO_CLASS

        PartialState(cpu=True)  # for accelerate's log
        self.begin = begin
        self.memory = memory
        self.tracker = LOGGER_TYPE_TO_CLASS[begin.tracker](*self.arguments(), **self.options())
        self.tracker.start()
        self.where = self.started()

    def arguments(self) -> tuple[str, ...]:
        """The project."""
        return (os.environ.get(self.project, PROJECT),)

    def options(self) -> dict[str, Any]:
        return {}

    def started(self) -> str:
        """Remembers the run's id. Returns where a user finds the run."""
        raise NotImplementedError

    def log(self, report: Report) -> None:
        raise NotImplementedError


class Trackio(Target):
    """Rollouts are traces."""

    project = "TRACKIO_PROJECT"

    def options(self) -> dict[str, Any]:
        # a run is known by its name
        return {"name": self.memory.id, "resume": "allow", "group": self.begin.group or None, "embed": False}

    def started(self) -> str:
        return self.tracker.tracker.url or f"trackio show --project {self.arguments()[0]}"

    def log(self, report: Report) -> None:
        import trackio

        traces = [
            trackio.Trace(
                [{"role": "user", "content": row.question}, {"role": "assistant", "content": row.completion}],
                {"node": row.node, "maker": row.maker, "task": row.task, "reward": row.reward},
            )
            for row in report.rollouts
        ]
        self.tracker.log({**report.metrics, **({"rollouts": traces} if traces else {})}, step=report.round)


class Wandb(Target):
    """Rollouts are a table. Charts have the round as their x-axis, as W&B's own steps cannot go back."""

    project = "WANDB_PROJECT"

    def options(self) -> dict[str, Any]:
        names = {"name": self.begin.run, "group": self.begin.group or None, "dir": self.begin.folder}
        return {"id": self.memory.id, "resume": "allow", **names}

    def started(self) -> str:
        run = self.tracker.tracker
        run.define_metric("round")
        run.define_metric("*", step_metric="round")
        return run.url or f"wandb sync {Path(run.dir).parent}"

    def log(self, report: Report) -> None:
        import wandb

        table = wandb.Table(columns=list(COLUMNS), data=[list(msgspec.structs.astuple(row)) for row in report.rollouts])
        self.tracker.log({"round": report.round, **report.metrics, **({"rollouts": table} if report.rollouts else {})})


class TensorBoard(Target):
    """Rollouts are texts. TensorBoard reads texts as Markdown; an indented block is shown as it is."""

    def arguments(self) -> tuple[str, ...]:
        return ("tensorboard", self.begin.folder)

    def started(self) -> str:
        return f"tensorboard --logdir {Path(self.begin.folder).parent}"

    def log(self, report: Report) -> None:
        texts = {f"rollouts/{number}": _block(row) for number, row in enumerate(report.rollouts, start=1)}
        self.tracker.log({**report.metrics, **texts}, step=report.round)


class Mlflow(Target):
    """Rollouts are a JSON artifact for each round."""

    def options(self) -> dict[str, Any]:
        return {"run_name": self.begin.run, "run_id": self.memory.id or None}

    def started(self) -> str:
        import mlflow

        self.memory.id = self.tracker.tracker.info.run_id
        store = re.sub(r"//[^/@]*@", "//", mlflow.get_tracking_uri())  # no password
        return store if store.startswith("http") else f"mlflow ui --backend-store-uri {store}"

    def log(self, report: Report) -> None:
        import mlflow

        metrics = list(report.metrics.items())
        for start in range(0, len(metrics), BATCH):
            self.tracker.log(dict(metrics[start : start + BATCH]), step=report.round)
        if report.rollouts:
            rows = [msgspec.to_builtins(row) for row in report.rollouts]
            mlflow.log_dict({"rollouts": rows}, f"rollouts/round-{report.round:06d}.json")


TARGETS: Final[dict[str, type[Target]]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
}


def _block(row: TrackedRollout) -> str:
    """A rollout as an indented block of Markdown, in which nothing is markup."""
    head = f"{row.task}, by {row.maker}, reward {row.reward:g}"
    return "\n".join(f"    {line}" for line in [head, "", *row.question.split("\n"), "", *row.completion.split("\n")])
