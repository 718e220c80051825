"""The trackers that a run reports to, and how each shows rollouts. All calls to one are made in one thread."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

PROJECT: Final = "shoal"
"""The project, where the tracker's own variable of the environment names none."""


@dataclass(frozen=True)
class Report:
    """A round, as trackers get it."""

    round: int
    metrics: Mapping[str, float]
    rollouts: Sequence[Mapping[str, Any]] = ()
    """Completions with their node, maker, task, question and reward. Plain characters, of bounded length."""
    late: bool = False
    """Whether this belongs to a round that was reported before."""


@dataclass(frozen=True)
class Start:
    """The run that is reported."""

    folder: Path
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: Mapping[str, Any] = field(default_factory=dict)


class Kind(Protocol):
    """A tracker with its run. Its class takes the start, the id of the tracker's run, and whether the run is new."""

    id: str
    where: str
    """Where a user finds the run."""

    def log(self, report: Report) -> None: ...

    def finish(self) -> None:
        """Sends what is left."""


class Trackio:
    """Rollouts are traces. A run is known by its name."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        import trackio

        for module in (trackio, trackio.utils):  # whose news would stand between the lines of the run
            vars(module)["print"] = lambda *words, **options: None
        self.id = id
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        config = dict(start.config) if new else None
        self.run = trackio.init(project, id, start.group or None, config=config, resume="allow", embed=False)
        self.where = self.run.url or f"trackio show --project {project}"

    def log(self, report: Report) -> None:
        import trackio

        said = {"user": "question", "assistant": "completion"}
        traces = [
            trackio.Trace(
                [{"role": role, "content": row[column]} for role, column in said.items()],
                {name: row[name] for name in row if name not in said.values()},
            )
            for row in report.rollouts
        ]
        self.run.log({**report.metrics, **({"rollouts": traces} if traces else {})}, step=report.round)

    def finish(self) -> None:
        self.run.finish()


class Wandb:
    """Rollouts are a table. Charts have the round as their x-axis, as W&B's own steps cannot go back."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        import wandb

        self.id = id
        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=start.run,
            group=start.group or None,
            dir=str(start.folder),
            config=dict(start.config) if new else None,
            id=id,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")
        self.where = self.run.url or f"wandb sync {Path(self.run.dir).parent}"

    def log(self, report: Report) -> None:
        import wandb

        rows = [list(row.values()) for row in report.rollouts]
        table = {"rollouts": wandb.Table(columns=list(report.rollouts[0]), data=rows)} if rows else {}
        self.run.log({"round": report.round, **report.metrics, **table})

    def finish(self) -> None:
        self.run.finish()


class TensorBoard:
    """Rollouts are texts. TensorBoard reads texts as Markdown; an indented block is shown as it is."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self.id = id
        self.writer: Any = SummaryWriter(start.folder / "tensorboard")
        if new:
            self.writer.add_hparams(start.config, {}, run_name=".")
        self.where = f"tensorboard --logdir {start.folder.parent}"

    def log(self, report: Report) -> None:
        for name, value in report.metrics.items():
            self.writer.add_scalar(name, value, report.round)
        for number, row in enumerate(report.rollouts, start=1):
            text = f"{row['task']}, by {row['maker']}, reward {row['reward']:g}\n\n{row['question']}\n\n"
            block = (text + row["completion"]).replace("\n", "\n    ")
            self.writer.add_text(f"rollouts/{number}", f"    {block}", report.round)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class Mlflow:
    """Rollouts are a JSON artifact for each round. Its server makes the ids of runs."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        import mlflow

        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        self.id = mlflow.start_run(run_id=None if new else id, run_name=start.run if new else None).info.run_id
        if new:
            mlflow.log_params(start.config)
        store = re.sub(r"//[^/@]*@", "//", mlflow.get_tracking_uri())  # no password
        self.where = store if store.startswith("http") else f"mlflow ui --backend-store-uri {store}"

    def log(self, report: Report) -> None:
        import mlflow

        mlflow.log_metrics(report.metrics, step=report.round)
        if report.rollouts:
            mlflow.log_dict({"rollouts": list(report.rollouts)}, f"rollouts/round-{report.round:06d}.json")

    def finish(self) -> None:
        import mlflow

        mlflow.end_run()


KINDS: Final[Mapping[str, Any]] = {"trackio": Trackio, "wandb": Wandb, "tensorboard": TensorBoard, "mlflow": Mlflow}
