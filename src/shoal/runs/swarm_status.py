"""The state of a joined node's swarm: `swarm.json` in the run's folder, for `shoal status` and `shoal watch`, and a few
lines in the display, both every few seconds (`StatusReporter`).

Names of peers are made of their keys, and reasons are this program's own words: nothing in a node's own file was
written by a stranger. The folder itself may come from one, so what is read is checked.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from shoal.errors import UserError
from shoal.runs.disk import write_atomically
from shoal.runs.folder import STATUS
from shoal.runs.watcher import Watcher
from shoal.untrusted import json_safe, parse_json, read_regular

if TYPE_CHECKING:
    from shoal.membership.connection import SwarmConnection

STALE = 15.0
"""Seconds without a new status after which a node counts as ended."""
MAX_BYTES = 1 << 24
"""Of the file, which has some thousands of peers at most."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Number = Annotated[float, msgspec.Meta(ge=-(2.0**63), le=2.0**63)]


class Flow(msgspec.Struct):
    """The messages in one direction."""

    messages: Count
    bytes: Count


class Peer(msgspec.Struct):
    """What one peer sent."""

    name: str
    admitted: Count
    last: Number
    muted: Number
    refused: dict[str, Count]
    kind: Literal["model", "human", "program"] = "model"
    """What answers there, by its own word."""
    display_name: str = ""
    id: str = ""
    """Its key, in hex."""


class Admitted(msgspec.Struct):
    """What all peers sent."""

    admitted: Count
    refused: dict[str, Count]
    peers: list[Peer]


class InPool(msgspec.Struct):
    """The rollouts in the pool. `wanted` is J."""

    rollouts: Count
    live: Count
    wanted: Count


class Status(msgspec.Struct):
    """The part of the file that is shown. It may have more."""

    time: Number
    name: str
    id: str
    swarm: str
    private: bool
    links: Count
    peers: Count
    neighbours: list[Any]
    note: str
    silo_since: Number | None
    faults: Count
    received: Flow
    sent: Flow
    pool: InPool
    admission: Admitted
    dropped: dict[str, Count] = {}
    contribution: Number | None = None
    """Peers' share of the gradient in the last round."""
    shortened: dict[str, Number] = {}
    """Of makers whose right answers were shortened of late: the share that was taken out of each one's."""
    limited: dict[str, tuple[Count, Number]] = {}
    """Makers from which it does not learn for a time: for how many rounds, and the share of their right answers' words
    that these did not need and their wrong ones lack."""
    limited_by: dict[str, tuple[Count, Number]] = {}
    """Who says that it does not learn from this node: for how many of its rounds, and that share."""
    display_name: str = ""
    first_fault: str = ""
    warning: str = ""
    code: bool = False
    """Whether its settings name code, so that --allow-code is needed to go on."""
    ended: bool = False
    """Whether this is the last one, of a node that ended in order."""


def read_status(folder: Path) -> dict[str, Any]:
    """The file in `folder`, with all that it has. Raises `UserError` unless it fits `Status`."""
    path = folder / STATUS
    try:
        status: dict[str, Any] = parse_json(read_regular(path, MAX_BYTES))
        msgspec.convert(status, Status)
    except FileNotFoundError:
        raise UserError(f"{folder} is not the folder of a node in a swarm (it has no {STATUS})") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not the status of a node: {error}") from error
    return status


def lines(status: Mapping[str, Any]) -> list[str]:
    """A status in a few lines, for the display of a run."""
    received, sent = status["received"], status["sent"]
    refused = reasons(all_refused(status), 3)
    parts = [
        f"swarm {status['swarm']} as {status['name']}: {status['peers']} peer{'s' * (status['peers'] != 1)}"
        + (f", listening to {len(status['neighbours'])}" if status["neighbours"] else ""),
        f"in {received['messages']} ({size(received['bytes'])}), out {sent['messages']} ({size(sent['bytes'])}); "
        f"{status['admission']['admitted']} admitted" + (f", refused: {refused}" if refused else ""),
    ]
    if limits := limited(status, 3, "limited_by"):
        parts.append(f"others say that they do not learn from this node: {limits}")
    if limits := limited(status, 3):
        parts.append(f"not learned from for a time: {limits}")
    if short := shortened(status.get("shortened", {}), 3):
        parts.append(f"taken out of right answers: {short}")
    return [*parts, status["note"]] if status["note"] else parts


def all_refused(status: Mapping[str, Any]) -> Counter[str]:
    """What admission refused, and what was dropped before it, by reason."""
    return Counter(status["admission"]["refused"]) + Counter(status.get("dropped", {}))


def reasons(refused: Mapping[str, int], most: int = 100) -> str:
    """Counts by reason, the most frequent first."""
    ordered = sorted(refused.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count}" for reason, count in ordered[:most]) + (", …" if len(ordered) > most else "")


def shortened(shares: Mapping[str, float], most: int = 20) -> str:
    """Makers whose right answers were shortened by 1 % or more, with the share that went, the greatest first."""
    ordered = sorted(((share, maker) for maker, share in shares.items() if share >= 0.01), reverse=True)
    return ", ".join(f"{maker} {share:.0%}" for share, maker in ordered[:most]) + (", …" if len(ordered) > most else "")


def limited(status: Mapping[str, Any], most: int = 20, which: str = "limited") -> str:
    """The makers from which this node does not learn for a time, for how long and why, the longest first. limited_by:
    the nodes that do not learn from this one."""
    found = status.get(which, {})
    ordered = sorted(((rounds, share, name) for name, (rounds, share) in found.items()), reverse=True)
    said = [f"{name} for {n} rounds ({share:.0%} of right answers' words)" for n, share, name in ordered]
    return ", ".join(said[:most]) + (", …" if len(said) > most else "")


def size(count: float) -> str:
    """Bytes with a unit: 870 B, 9 KB."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


INTERVAL = 2.0  # seconds between two reports while a round takes long
REMEMBERED = 64  # makers whose answers were learned from


class StatusReporter:
    """Tells the state of the swarm every few seconds. Close it."""

    def __init__(self, watcher: Watcher, member: SwarmConnection, folder: Path, wanted: int) -> None:
        """`wanted`: J, the rollouts of others that an update can use."""
        self._watcher = watcher
        self._member = member
        self._folder = folder
        self._pool = {"rollouts": 0, "live": 0, "wanted": wanted}
        self._share: float | None = None
        self._shortened: dict[str, float] = {}
        self._limited: Mapping[str, tuple[int, float]] = {}
        self._warned = ""
        self._closed = threading.Event()
        self._lock = threading.Lock()
        """The run's thread and this object's own report one after the other."""
        self._thread = threading.Thread(target=self._repeat, name="shoal-status", daemon=True)
        self._thread.start()

    def update(
        self,
        row: Mapping[str, Any],
        learned: Sequence[Mapping[str, Any]] = (),
        limited: Mapping[str, tuple[int, float]] = MappingProxyType({}),
    ) -> None:
        """Takes the metrics of a round, the rows of what was learned from, and `Shortener.limits`."""
        self._limited = dict([*limited.items()][-REMEMBERED:])
        for one in learned:
            if one["shortened"] is not None:  # a mean of the last ten or so; who is honest again leaves soon
                before = self._shortened.pop(one["maker"], one["shortened"])
                self._shortened[one["maker"]] = 0.9 * before + 0.1 * one["shortened"]
        self._shortened = dict([*self._shortened.items()][-REMEMBERED:])
        if row.get("rollouts/pool") is not None:
            self._pool |= {"rollouts": row["rollouts/pool"], "live": row["rollouts/live_pool"]}
        self._share = row.get("gradient/peers")
        self._report()

    def close(self) -> None:
        """Notes in the file that the node has ended."""
        self._closed.set()
        self._thread.join()
        self._write(self._status() | {"ended": True})

    def _repeat(self) -> None:
        while not self._closed.wait(INTERVAL):
            self._report()

    def _report(self) -> None:
        with self._lock:
            status = self._status()
            self._write(status)
            if status["warning"] not in ("", self._warned):
                self._warned = status["warning"]
                self._watcher.warn(status["warning"])
            self._watcher.panel(lines(status))

    def _status(self) -> dict[str, Any]:
        own = {"pool": self._pool, "contribution": self._share, "shortened": self._shortened, "ended": False}
        return self._member.status() | own | {"limited": self._limited}

    def _write(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(UserError):  # the run itself reports a full disk
            write_atomically(self._folder / STATUS, json.dumps(json_safe(status)).encode())
