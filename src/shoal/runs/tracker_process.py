"""A tracker in a process of its own: it may print, wait, fail or hang, and training goes on.

The parent (`runs.trackers`) sends lines of JSON: a `Begin`, then a `Report` for each round. Each gets a `Reply`. The
tracker is one of accelerate's (`accelerate.tracking`).

    shoal's process  --Begin, Report, ...-->  python -m shoal.runs.tracker_process  -->  wandb, trackio, ...
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, Literal, TextIO

import msgspec

from shoal.config.caches import alone
from shoal.errors import UserError
from shoal.runs.atomic import write_atomically
from shoal.runs.folder import run_metrics
from shoal.runs.tracker_rows import COLUMNS, TrackedRollout, tracked_metrics
from shoal.sandbox.pipes import own_pipes
from shoal.untrusted import printable, read_regular

PROJECT: Final = "shoal"
"""The project, where the tracker's own variable of the environment names none."""
LIMIT: Final = 60.0
"""Seconds that a tracker has for what is left when the run ends."""
MOST_BYTES: Final = 1 << 12
"""Of what is remembered of a tracker's run."""
BATCH: Final = 1000
"""Metrics that mlflow takes at once."""


class Begin(msgspec.Struct):
    """What is reported, and to which tracker."""

    tracker: str
    folder: str
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: dict[str, bool | int | float | str]
    done: int = -1
    """The round after which a resumed run goes on."""


class Report(msgspec.Struct):
    """A round."""

    round: int
    metrics: dict[str, float]
    rollouts: list[TrackedRollout] = []
    late: bool = False
    """Whether this belongs to a round that was reported before."""


Kind = Literal["began", "refused", "done", "failed", "warned"]


class Reply(msgspec.Struct):
    """To each message: began or done, or failed. refused: nothing else is taken. warned: by the tracker itself."""

    kind: Kind
    text: str = ""
    """Where the run is shown, or what went wrong."""


class Memory(msgspec.Struct):
    """What a resumed run has to know of a tracker."""

    id: str = ""
    """Of the tracker's run."""
    round: int = -1
    """The last that was reported."""


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


def main() -> None:
    """Serves until the parent closes the pipe or ends."""
    requests, replies = own_pipes()
    threading.Thread(target=_end_after_parent, args=(os.getppid(),), daemon=True).start()
    decode = msgspec.json.Decoder(Report).decode

    lock = threading.Lock()

    def reply(kind: Kind, text: str = "") -> None:
        with lock, contextlib.suppress(BrokenPipeError):  # the parent is gone; what came is still reported
            replies.write(msgspec.json.encode(Reply(kind, text)) + b"\n")
            replies.flush()

    begin = msgspec.json.decode(requests.readline(), type=Begin)

    def on_warning(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if category is UserWarning and begin.tracker in Path(filename).parts:  # trackio says so that its server is down
            reply("warned", printable(str(message).removeprefix("* "), 300))

    warnings.showwarning = on_warning
    file = Path(begin.folder) / f"{begin.tracker}.json"
    try:
        # one at a time: the process of a run that was killed still reports what it got, and a resumed run makes some
        # of it again
        with alone(file.with_suffix(".lock"), f"waiting for {begin.tracker}"):
            target = _begun(begin, file)
            reply("began", target.where)
            try:
                for report in _missed(begin, target.memory):
                    _take(target, report, file)
            except Exception as error:
                reply("warned", f"it did not take what it had missed: {_said(error)}")
            for line in requests:
                if not line.endswith(b"\n"):  # the parent was killed while it wrote
                    break
                try:
                    _take(target, decode(line), file)
                    reply("done")
                except Exception as error:
                    reply("failed", _said(error))
            target.tracker.finish()
    except Exception as error:  # a tracker raises whatever it likes
        reply("refused", _said(error))


def _begun(begin: Begin, file: Path) -> Target:
    """The tracker with its run, which `file` remembers."""
    memory = remembered(file)
    new = memory.round < 0
    if not memory.id and begin.tracker != "mlflow":  # whose server makes the ids
        memory.id = f"{_slug(begin.run)[:40]}-{secrets.token_hex(3)}"
    target = TARGETS[begin.tracker](begin, memory)
    if new:
        target.tracker.store_init_configuration(begin.config)
    write_atomically(file, msgspec.json.encode(memory))
    return target


def _missed(begin: Begin, memory: Memory) -> Iterator[Report]:
    """The metrics of rounds before this resumption that did not reach the tracker: they were on their way when the run
    was killed, the tracker was down, or the run did not report to it."""
    rounds: dict[int, list[dict[str, Any]]] = {}
    for row in run_metrics(Path(begin.folder).parent) if memory.round < begin.done else []:
        if memory.round < row["round"] <= begin.done:
            rounds.setdefault(row["round"], []).append(row)
    for round, rows in sorted(rounds.items()):
        yield Report(round, tracked_metrics(rows))


def _take(target: Target, report: Report, file: Path) -> None:
    """Reports a round once: a resumed run makes some rounds again."""
    memory = target.memory
    if report.late or report.round > memory.round:
        target.log(report)
        memory.round = max(memory.round, report.round)
        write_atomically(file, msgspec.json.encode(memory))


def remembered(file: Path) -> Memory:
    """What the run's folder, which may be a stranger's, says of the tracker's run. Raises `UserError`."""
    try:
        memory = msgspec.json.decode(read_regular(file, MOST_BYTES), type=Memory)
    except FileNotFoundError:
        return Memory()
    except (OSError, msgspec.MsgspecError) as error:
        raise UserError(f"cannot read {file}: {error}; remove it to begin a new run there") from error
    if memory.id != _slug(memory.id):
        raise UserError(f"{file} has no id of a run: remove it to begin a new run there")
    return memory


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64]


def _block(row: TrackedRollout) -> str:
    """A rollout as an indented block of Markdown, in which nothing is markup."""
    head = f"{row.task}, by {row.maker}, reward {row.reward:g}"
    return "\n".join(f"    {line}" for line in [head, "", *row.question.split("\n"), "", *row.completion.split("\n")])


def _said(error: Exception) -> str:
    return printable(str(error).strip() if isinstance(error, UserError) else f"{type(error).__name__}: {error}", 300)


def _end_after_parent(parent: int) -> None:
    """Ends this process some time after the parent, also while a tracker hangs."""
    while os.getppid() == parent:
        time.sleep(1.0)
    time.sleep(LIMIT)
    os._exit(1)


if __name__ == "__main__":
    main()
