"""Trackers (trackio, wandb, tensorboard, mlflow) get the metrics and a few rollouts of each round: `--report-to`.

    with Trackers(config, folder, names) as trackers:
        trackers.report(round, rows, results)     # returns at once
        print(trackers.troubles)

Each tracker has a thread of its own, so that one that waits, fails or hangs neither stops nor changes training: what it
does not take is counted and left out.
"""

import importlib.util
import queue
import re
import secrets
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Self

import msgspec

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.node import RoundResult
from shoal.runs.disk import disk_errors, write_atomically
from shoal.runs.folder import TRACKERS
from shoal.runs.tracker_kinds import KINDS, Kind, Report, Start
from shoal.runs.tracker_rows import tracked_config, tracked_metrics, tracked_rollouts
from shoal.untrusted import printable, read_regular

LIMIT: Final = 60.0
"""Seconds that all trackers have for what is left when the run ends."""
WAITING: Final = 500
"""Rounds that wait for a tracker, at most."""
MOST_BYTES: Final = 1 << 12
"""Of what is remembered of a tracker's run."""


class Trackers:
    """The trackers that a run reports to. Close them."""

    def __init__(self, config: Config, folder: Path, nodes: Sequence[str] = (), group: str = "") -> None:
        """`folder`: of the run. `group`: the swarm that its node joined."""
        place = folder.absolute() / TRACKERS
        if config.report_to:
            with disk_errors(place):
                place.mkdir(exist_ok=True)
        run = folder.absolute().name + (f"-{nodes[0]}" if group else "")
        start = Start(place, run, group, tracked_config(config) | {"nodes": ", ".join(nodes)})
        self._trackers = [_Tracker(name, start) for name in config.report_to]

    def report(
        self,
        round: int,
        rows: Sequence[Mapping[str, Any]],
        results: Sequence[tuple[str, RoundResult]] = (),
        late: bool = False,
    ) -> None:
        """Hands a round to all trackers and returns at once. `rows`: its metrics; `results`: with each node's name.
        `late`: the metrics are more of a round that was reported before."""
        if self._trackers:
            report = Report(round, tracked_metrics(rows), tracked_rollouts(results), late)
            for tracker in self._trackers:
                tracker.send(report)

    def news(self) -> list[str]:
        """Where each tracker shows the run, once."""
        return [line for tracker in self._trackers if (line := tracker.news())]

    @property
    def names(self) -> str:
        return ", ".join(tracker.name for tracker in self._trackers)

    @property
    def troubles(self) -> dict[str, str]:
        """What is wrong with each that has trouble, in one line."""
        return {tracker.name: trouble for tracker in self._trackers if (trouble := tracker.trouble)}

    def close(self, limit: float = LIMIT) -> None:
        """Gives the trackers `limit` seconds, all together, for what they did not take yet."""
        deadline = time.monotonic() + limit
        for tracker in self._trackers:
            tracker.send(None)
        for tracker in self._trackers:
            tracker.close(max(0.0, deadline - time.monotonic()), limit)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0.0 if kind is KeyboardInterrupt else LIMIT)


class _Tracker:
    """A tracker and its thread, which the end of the process does not wait for."""

    def __init__(self, name: str, start: Start) -> None:
        self.name = name
        self._start = start
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._where = self._fatal = self._why = ""
        self._failed = self._left_out = 0
        self._thread = threading.Thread(target=self._run, name=f"shoal-{name}", daemon=True)
        if importlib.util.find_spec(name) is None:
            self._fatal = f"it is not installed: `pip install {name}`"
        else:
            self._thread.start()

    def send(self, report: Report | None) -> None:
        """Hands a round over, or leaves it out if the tracker is behind. None: there is no more to come."""
        if report is not None and self._reports.qsize() >= WAITING:
            self._left_out += 1
        else:
            self._reports.put(report)

    def news(self) -> str:
        """Where the tracker shows the run, once; empty before and after."""
        where, self._where = self._where, ""
        return where and f"{self.name}: {where}"

    @property
    def trouble(self) -> str:
        """What is wrong with it in one line; empty if nothing is."""
        if self._fatal:
            return f"the run goes on without {self.name}: {self._fatal}"
        if self._failed:
            return f"{self.name} did not take {_rounds(self._failed)}: {self._why}"
        return f"{self.name} is slower than the run: {_rounds(self._left_out)} left out" if self._left_out else ""

    def close(self, seconds: float, limit: float) -> None:
        """Waits for so many `seconds` of `limit`."""
        if not self._fatal:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._fatal = f"no answer within {limit:.0f} seconds at the end"

    def _run(self) -> None:
        file = self._start.folder / f"{self.name}.json"
        try:
            memory = remembered(file)
            fresh = f"{_slug(self._start.run)[:40]}-{secrets.token_hex(3)}"
            kind: Kind = KINDS[self.name](self._start, memory.id or fresh, new=memory.round < 0)
            memory.id = kind.id
            write_atomically(file, msgspec.json.encode(memory))
            self._where = printable(kind.where)
            while report := self._reports.get():
                if not (report.late or report.round > memory.round):
                    continue  # a resumed run makes some rounds again
                try:
                    kind.log(report)
                except Exception as error:
                    self._failed, self._why = self._failed + 1, self._why or _said(error)
                else:
                    memory.round = max(memory.round, report.round)
                    write_atomically(file, msgspec.json.encode(memory))
            kind.finish()
        except Exception as error:  # a tracker raises whatever it likes
            self._fatal = _said(error)


class Memory(msgspec.Struct):
    """What a resumed run has to know of a tracker."""

    id: str = ""
    """Of the tracker's run."""
    round: int = -1
    """The last that was reported."""


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


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
