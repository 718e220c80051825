"""The trackers that a run reports to, and how each shows rollouts. All calls to one are made in one thread."""

import os
import re
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from typing import Any, Final

from shoal.runs.tracker_rows import Report, Settings, TrackedRollout

PROJECT: Final = "shoal"
"""The project, where the tracker's own variable of the environment names none."""


@dataclass(frozen=True)
class Start:
    """What is reported."""

    folder: Path
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: Settings


class Kind:
    """A tracker with its run. Subclasses say how it begins, and how it shows rollouts."""

    where: str
    """Where a user finds the run."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        """`id`: of the tracker's run, which is there unless it is `new`; empty where the tracker gives it."""
        self.id = id

    def log(self, report: Report) -> None:
        raise NotImplementedError

    def finish(self) -> None:
        """Sends what is left."""
        raise NotImplementedError


class Trackio(Kind):
    """Rollouts are traces. A run is known by its name."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        super().__init__(start, id, new)
        import trackio

        for module in (trackio, trackio.utils):  # whose news would stand between the lines of the run
            vars(module)["print"] = lambda *words, **options: None
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        config = start.config if new else None
        self.run = trackio.init(project, id, start.group or None, config=config, resume="allow", embed=False)
        self.where = self.run.url or f"trackio show --project {project}"

    def log(self, report: Report) -> None:
        import trackio

        traces = [
            trackio.Trace(
                [{"role": "user", "content": row.question}, {"role": "assistant", "content": row.completion}],
                {"node": row.node, "maker": row.maker, "task": row.task, "reward": row.reward},
            )
            for row in report.rollouts
        ]
        self.run.log({**report.metrics, **({"rollouts": traces} if traces else {})}, step=report.round)

    def finish(self) -> None:
        self.run.finish()


class Wandb(Kind):
    """Rollouts are a table. Charts have the round as their x-axis, as W&B's own steps cannot go back."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        super().__init__(start, id, new)
        import wandb

        self.run = wandb.init(
            project=os.environ.get("WANDB_PROJECT", PROJECT),
            name=start.run,
            group=start.group or None,
            dir=str(start.folder),
            config=start.config if new else None,
            id=id,
            resume="allow",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.run.define_metric("round")
        self.run.define_metric("*", step_metric="round")
        self.where = self.run.url or f"wandb sync {Path(self.run.dir).parent}"

    def log(self, report: Report) -> None:
        import wandb

        table = {}
        if report.rollouts:
            columns = [field.name for field in fields(TrackedRollout)]
            table["rollouts"] = wandb.Table(columns=columns, data=[list(astuple(row)) for row in report.rollouts])
        self.run.log({"round": report.round, **report.metrics, **table})

    def finish(self) -> None:
        self.run.finish()


class TensorBoard(Kind):
    """Rollouts are texts. TensorBoard reads texts as Markdown; an indented block is shown as it is."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        super().__init__(start, id, new)
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(start.folder / "tensorboard")
        if new:
            self.writer.add_hparams(start.config, {}, run_name=".")
        self.where = f"tensorboard --logdir {start.folder.parent}"

    def log(self, report: Report) -> None:
        for name, value in report.metrics.items():
            self.writer.add_scalar(name, value, report.round)
        for number, row in enumerate(report.rollouts, start=1):
            self.writer.add_text(f"rollouts/{number}", _block(row), report.round)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()


class Mlflow(Kind):
    """Rollouts are a JSON artifact for each round."""

    def __init__(self, start: Start, id: str, new: bool) -> None:
        super().__init__(start, id, new)
        import mlflow

        mlflow.set_experiment(os.environ.get("MLFLOW_EXPERIMENT_NAME", PROJECT))
        run = mlflow.start_run(run_id=id or None, run_name=None if id else start.run)
        self.id = run.info.run_id
        if new:
            mlflow.log_params(start.config)
        store = re.sub(r"//[^/@]*@", "//", mlflow.get_tracking_uri())  # no password
        self.where = store if store.startswith("http") else f"mlflow ui --backend-store-uri {store}"

    def log(self, report: Report) -> None:
        import mlflow

        mlflow.log_metrics(report.metrics, step=report.round)
        if report.rollouts:
            rows = [asdict(row) for row in report.rollouts]
            mlflow.log_dict({"rollouts": rows}, f"rollouts/round-{report.round:06d}.json")

    def finish(self) -> None:
        import mlflow

        mlflow.end_run()


KINDS: Final[dict[str, type[Kind]]] = {
    "trackio": Trackio,
    "wandb": Wandb,
    "tensorboard": TensorBoard,
    "mlflow": Mlflow,
}


def _block(row: TrackedRollout) -> str:
    """A rollout as an indented block of Markdown, in which nothing is markup."""
    head = f"{row.task}, by {row.maker}, reward {row.reward:g}"
    return "\n".join(f"    {line}" for line in [head, "", *row.question.split("\n"), "", *row.completion.split("\n")])
