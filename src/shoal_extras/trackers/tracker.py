"""A tracker in a thread of its own, so that one that waits, fails or hangs neither stops nor changes training: what it
does not take is counted and left out. docs/guides/trackers.md has one of ten lines.

A process of several nodes reports the mean over its nodes under the name of the metric, so that runs of any size
compare, and each node's own figure under `NODE/NAME`.
"""

import json
import math
import queue
import re
import secrets
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
from statistics import fmean
from typing import Annotated, Any, Final

import msgspec

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.node import RoundResult
from shoal.rollout import Scored
from shoal.runs.disk import disk_errors, write_atomically
from shoal.runs.folder import TRACKERS
from shoal.untrusted import json_safe, printable, read_regular

WAITING: Final = 500
"""Rounds that wait for a tracker, at most."""
MOST_BYTES: Final = 1 << 12
"""Of what is remembered of a tracker's run."""
MOST: Final = 8
"""Rollouts of a round that are shown, of all nodes together."""
LONGEST, NAME = 4000, 100
"""Characters of a text and of a name that are shown."""


@dataclass(frozen=True)
class Start:
    """The run that is reported."""

    folder: Path
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: Mapping[str, Any]
    """The settings by their dotted names."""


@dataclass(frozen=True)
class Report:
    """A round, as trackers get it."""

    round: int
    metrics: Mapping[str, float]
    rollouts: Sequence[Mapping[str, Any]]
    """Completions with their node, maker, task, prompt and reward. Plain characters, of bounded length."""
    late: bool
    """Whether this belongs to a round that was reported before."""


class Tracker:
    """A subclass has `begin`, `log` and perhaps `finish`, which are called in the tracker's thread. The end of the
    process does not wait for that."""

    needs = ""
    """The package that it imports, so that a run says at once that it is missing."""

    def __init__(self, name: str, config: Config, folder: Path, nodes: Sequence[str] = (), group: str = "") -> None:
        """`name`: as `--report-to` has it. `folder`: of the run. `group`: the swarm that its node joined."""
        self.name = name
        place = folder.absolute() / TRACKERS
        with disk_errors(place):
            place.mkdir(exist_ok=True)
        run = folder.absolute().name + (f"-{nodes[0]}" if group else "")
        start = Start(place, run, group, tracked_config(config) | {"nodes": ", ".join(nodes)})
        self._reports: queue.SimpleQueue[Report | None] = queue.SimpleQueue()
        self._where = self._fatal = self._why = ""
        self._failed = self._left_out = 0
        self._thread = threading.Thread(target=self._run, args=(start,), name=f"shoal-{name}", daemon=True)
        self._thread.start()

    def begin(self, start: Start, id: str, new: bool) -> str:
        """Begins the tracker's run `id`, or goes on with it unless it is `new`. Returns where a user finds it."""
        raise NotImplementedError

    def log(self, report: Report) -> None:
        """Sends a round."""
        raise NotImplementedError

    def finish(self) -> None:
        """Sends what is left."""

    def report(
        self,
        round: int,
        rows: Sequence[Mapping[str, Any]],
        results: Sequence[tuple[str, RoundResult]] = (),
        late: bool = False,
    ) -> None:
        """Hands a round over, or leaves it out if the tracker is behind."""
        if self._reports.qsize() >= WAITING:
            self._left_out += 1
        else:
            self._reports.put(Report(round, tracked_metrics(rows), tracked_rollouts(results), late))

    def news(self) -> str:
        where, self._where = self._where, ""
        return where

    @property
    def trouble(self) -> str:
        if self._fatal:
            return f"the run goes on without {self.name}: {self._fatal}"
        count = self._failed or self._left_out
        rounds = f"{count} round{'s' * (count != 1)}"
        if self._failed:
            return f"{self.name} did not take {rounds}: {self._why}"
        return f"{self.name} is slower than the run: {rounds} left out" if count else ""

    def end(self) -> None:
        self._reports.put(None)

    def wait(self, seconds: float) -> None:
        if not self._fatal:
            self._thread.join(seconds)
            if self._thread.is_alive():
                self._fatal = "it did not take the last rounds in time"

    def _run(self, start: Start) -> None:
        name = _slug(self.name)
        file = start.folder / f"{name}.json"
        try:
            memory = remembered(file)
            memory.id = memory.id or f"{_slug(start.run)[:40]}-{secrets.token_hex(3)}"
            where = self.begin(start, memory.id, memory.round < 0)
            write_atomically(file, msgspec.json.encode(memory))
            self._where = printable(where)
            while report := self._reports.get():
                if not (report.late or report.round > memory.round):
                    continue  # a resumed run makes some rounds again
                try:
                    self.log(report)
                except Exception as error:
                    self._failed, self._why = self._failed + 1, self._why or _said(error)
                else:
                    memory.round = max(memory.round, report.round)
                    write_atomically(file, msgspec.json.encode(memory))
            self.finish()
        except Exception as error:  # a tracker raises whatever it likes
            self._fatal = _said(error)


class Memory(msgspec.Struct):
    """What a resumed run has to know of a tracker."""

    id: Annotated[str, msgspec.Meta(pattern="^[A-Za-z0-9_-]{0,64}$")] = ""
    """Of the tracker's run."""
    round: int = -1
    """The last that was reported."""


def remembered(file: Path) -> Memory:
    """What the run's folder, which may be a stranger's, says of the tracker's run. Raises `UserError`."""
    try:
        return msgspec.json.decode(read_regular(file, MOST_BYTES), type=Memory)
    except FileNotFoundError:
        return Memory()
    except (OSError, msgspec.MsgspecError, RecursionError) as error:
        raise UserError(f"cannot read {file}: {error}; remove it to begin a new run there") from error


def _slug(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)[:64]


def _said(error: Exception) -> str:
    return printable(str(error).strip() if isinstance(error, UserError) else f"{type(error).__name__}: {error}", 300)


def tracked_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers in the metrics of a round, which has a row for each node."""
    found: dict[str, list[float]] = {}
    own: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("round", "time") and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(tracked_name(name), []).append(value)
                own[tracked_name(f"{row['node']}/{name}")] = value
    means = {name: fmean(values) for name, values in found.items()}
    return means | own if len(rows) > 1 else means


def tracked_name(name: str) -> str:
    """A name that every tracker takes: letters, digits and `_-./`; `@` becomes `_at_`, all else `_`."""
    return re.sub(r"[^A-Za-z0-9_\-./]", "_", name.replace("@", "_at_"))


def tracked_rollouts(results: Sequence[tuple[str, RoundResult]]) -> list[dict[str, Any]]:
    """The first completions of a few rollouts of a round: each node's own and its peers' by turns. `results`: with the
    name of the node. Texts may be a stranger's: they become plain characters, of bounded length."""
    groups = [[(name, one) for one in group] for name, r in results for group in (r.local, r.from_peers)]
    by_turns = (one for turn in zip_longest(*groups) for one in turn if one and one[1].rollout.completions)
    return [_row(node, scored) for node, scored in islice(by_turns, MOST)]


def _row(node: str, scored: Scored) -> dict[str, Any]:
    return {
        "node": printable(node, NAME),
        "maker": printable(scored.rollout.node, NAME),
        "task": printable(scored.question.id.task, NAME),
        "prompt": _visible(scored.question.shown),
        "completion": _visible(scored.rollout.completions[0].text),
        "reward": scored.rewards[0],
    }


def _visible(text: str) -> str:
    """`text` of at most `LONGEST` characters, with ? for what is invisible or would steer a terminal."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in cut)


def tracked_config(config: Config) -> dict[str, Any]:
    """The settings by their dotted names: lists as JSON, and of the network the swarm's name alone."""
    sections = config.model_dump(mode="json", exclude={"evaluation": {"judges"}})
    sections["network"] = {"name": config.network.name}
    sections["policy"]["model"] = [re.sub(r"//[^/@]*@", "//", name) for name in config.policy.model]  # no password
    found: dict[str, Any] = {}
    for name, value in sections.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {name: json.dumps(json_safe(v)) if isinstance(v, list | dict) else v for name, v in found.items()}
