"""A tracker in a process of its own: it may print, wait, fail or hang, and training goes on.

The run (`runs.tracker_link`) sends lines of JSON: a `Begin`, then a `Report` for each round. Each gets a `Reply`. The
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
from typing import Any, Final, TextIO

import msgspec

from shoal.config.caches import alone
from shoal.errors import UserError
from shoal.runs.atomic import write_atomically
from shoal.runs.folder import run_metrics
from shoal.runs.tracker_messages import Begin, Kind, Memory, Reply, Report
from shoal.runs.tracker_rows import tracked_metrics
from shoal.runs.tracker_targets import TARGETS, Target
from shoal.sandbox.pipes import own_pipes
from shoal.untrusted import printable, read_regular

LIMIT: Final = 60.0
"""Seconds that a tracker has for what is left when the run ends."""
MOST_BYTES: Final = 1 << 12
"""Of what is remembered of a tracker's run."""


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
