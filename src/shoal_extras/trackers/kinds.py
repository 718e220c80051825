"""Trackers, and how each shows rollouts."""

import os
from pathlib import Path
from typing import Any, Final

from shoal_extras.trackers.tracker import Report, Start, Tracker

PROJECT: Final = "shoal"
"""The project, where the tracker's own variable of the environment names none."""


class Trackio(Tracker):
    """Rollouts are traces. A run is known by its name."""

    needs = "trackio"

    def begin(self, start: Start, id: str, new: bool) -> str:
        import trackio

        for module in (trackio, trackio.utils):  # whose news would stand between the lines of the run
            vars(module)["print"] = lambda *words, **options: None
        project = os.environ.get("TRACKIO_PROJECT", PROJECT)
        config = dict(start.config) if new else None
        self.run = trackio.init(project, id, start.group or None, config=config, resume="allow", embed=False)
        return self.run.url or f"trackio show --project {project}"

    def log(self, report: Report) -> None:
        import trackio

        traces = []
        for row in report.rollouts:
            about = dict(row)
            said = {"user": about.pop("prompt"), "assistant": about.pop("completion")}
            traces.append(trackio.Trace([{"role": role, "content": text} for role, text in said.items()], about))
        self.run.log({**report.metrics, **({"rollouts": traces} if traces else {})}, step=report.round)

    def finish(self) -> None:
        self.run.finish()


class Wandb(Tracker):
    """Rollouts are a table. Charts have the round as their x-axis, as W&B's own steps cannot go back."""

    needs = "wandb"

    def begin(self, start: Start, id: str, new: bool) -> str:
        import wandb

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
        return self.run.url or f"wandb sync {Path(self.run.dir).parent}"

    def log(self, report: Report) -> None:
        import wandb

        rows = [list(row.values()) for row in report.rollouts]
        table = {"rollouts": wandb.Table(columns=list(report.rollouts[0]), data=rows)} if rows else {}
        self.run.log({"round": report.round, **report.metrics, **table})

    def finish(self) -> None:
        self.run.finish()


class TensorBoard(Tracker):
    """Rollouts are texts. TensorBoard reads texts as Markdown; an indented block is shown as it is."""

    needs = "tensorboard"

    def begin(self, start: Start, id: str, new: bool) -> str:
        from torch.utils.tensorboard import SummaryWriter

        self.writer: Any = SummaryWriter(start.folder / "tensorboard")
        if new:
            self.writer.add_hparams(start.config, {}, run_name=".")
        return f"tensorboard --logdir {start.folder.parent}"

    def log(self, report: Report) -> None:
        for name, value in report.metrics.items():
            self.writer.add_scalar(name, value, report.round)
        for number, row in enumerate(report.rollouts, start=1):
            text = f"{row['task']}, by {row['maker']}, reward {row['reward']:g}\n\n{row['prompt']}\n\n"
            block = (text + row["completion"]).replace("\n", "\n    ")
            self.writer.add_text(f"rollouts/{number}", f"    {block}", report.round)
        self.writer.flush()

    def finish(self) -> None:
        self.writer.close()
