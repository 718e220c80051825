"""The state of a joined node's swarm: `swarm.json` in the run's folder, written every few seconds.

Names of peers are made of their keys, and reasons are this program's own words: nothing in a node's own file was
written by a stranger. The folder itself may come from one, so what is read is checked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec

from shoal.errors import UserError
from shoal.runs.folder import STATUS
from shoal.untrusted import parse_json, read_regular

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
    messages_per_second: Number
    bytes_per_second: Number
    overflow: Count


class Peer(msgspec.Struct):
    """What one peer sent."""

    name: str
    admitted: Count
    weight: Number
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
    wanted: Count
    note: str
    silo_since: Number | None
    faults: Count
    received: Flow
    sent: Flow
    pool: InPool
    admission: Admitted
    dropped: dict[str, Count] = {}
    shard: str = ""
    region: str = ""
    display_name: str = ""
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


def lines(status: Mapping[str, Any], share: float | None) -> list[str]:
    """A status in a few lines, for the display of a run. `share`: other nodes' share of the gradient."""
    received, sent = status["received"], status["sent"]
    refused = reasons(all_refused(status), 3)
    region = "" if not status.get("shard") else f" in {status['region']}*" if status["region"] else " in all shards"
    parts = [
        f"swarm {status['swarm']} as {status['name']}: {status['peers']} peer{'s' * (status['peers'] != 1)}"
        f"{region}, listening to {len(status['neighbours'])}",
        f"in {received['messages_per_second']:.1f}/s ({size(received['bytes_per_second'])}/s), "
        f"out {sent['messages_per_second']:.1f}/s; {status['admission']['admitted']} admitted"
        + (f", refused: {refused}" if refused else ""),
    ]
    if share is not None:
        parts.append(f"{share:.0%} of this round's gradient came from other nodes")
    return parts


def all_refused(status: Mapping[str, Any]) -> Counter[str]:
    """What admission refused, and what was dropped before it, by reason."""
    return Counter(status["admission"]["refused"]) + Counter(status.get("dropped", {}))


def reasons(refused: Mapping[str, int], most: int = 100) -> str:
    """Counts by reason, the most frequent first."""
    ordered = sorted(refused.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count}" for reason, count in ordered[:most]) + (", …" if len(ordered) > most else "")


def size(count: float) -> str:
    """Bytes with a unit: 870 B, 9 KB."""
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"
