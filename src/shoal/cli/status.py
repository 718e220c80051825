"""How a node's swarm stands, as `shoal status` and the live display show it.

Names of peers are made of their keys, and reasons are this program's own words: nothing in a node's own status was
written by a stranger. The folder may come from one, so what is read is checked, and shown without control characters.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import msgspec
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.errors import UserError
from shoal.runs.folder import METRICS, STATUS, clean, run_metrics
from shoal.untrusted import harmless, parse_json, read_plain

HELP = """Shows the state of a node of `shoal join`: peers, rates, what was refused and why, what the swarm gave.

  shoal status                  of the node that runs in this folder
  shoal status runs/one --json"""
STALE = 15.0
"""Seconds without a new status after which a node counts as gone."""
SHOWN = 20
"""Peers in the table."""
MOST_BYTES = 1 << 24
"""Of a status: it has at most some thousands of peers."""
LONGEST = 400
"""Characters of any of its texts that are shown."""

Count = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
Number = Annotated[float, msgspec.Meta(ge=-(2.0**63), le=2.0**63)]


class Flow(msgspec.Struct):
    """What came in, or went out."""

    messages: Count
    bytes: Count
    messages_per_second: Number
    bytes_per_second: Number
    overflow: Count


class Peer(msgspec.Struct):
    """What came of one peer."""

    name: str
    admitted: Count
    weight: Number
    last: Number
    muted: Number
    refused: dict[str, Count]
    id: str = ""


class Admitted(msgspec.Struct):
    admitted: Count
    refused: dict[str, Count]
    peers: list[Peer]


class InPool(msgspec.Struct):
    rollouts: Count
    live: Count
    wanted: Count


class Status(msgspec.Struct):
    """What of a status is shown. It may have more."""

    time: Number
    name: str
    id: str
    swarm: str
    private: bool
    links: Count
    shard: str
    region: str
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


def status_session(folder: Path | None, as_json: bool) -> int:
    """`shoal status`: of the run in `folder`, or of the one that wrote its status last."""
    folder = folder or newest()
    status = read_status(folder)
    status["gained"] = gained(run_metrics(folder) if (folder / METRICS).exists() else [])
    if as_json:
        print(json.dumps(clean({"folder": str(folder), **status})))
    else:
        Console().print(screen(folder, status, time.time()))
    return 0


def newest() -> Path:
    """The run under `runs/` whose swarm's status is the newest. Raises `UserError` if there is none."""
    found = list(Path("runs").glob(f"*/{STATUS}"))
    if not found:
        raise UserError("no node of a swarm runs in this folder: `shoal join` starts one; give its folder otherwise")
    return max(found, key=lambda path: path.lstat().st_mtime).parent


def read_status(folder: Path) -> dict[str, Any]:
    """What the node in `folder` wrote last. Raises `UserError` if it is not that."""
    path = folder / STATUS
    try:
        status: dict[str, Any] = parse_json(read_plain(path, MOST_BYTES))
        msgspec.convert(status, Status)
    except FileNotFoundError:
        raise UserError(f"{folder} is not the folder of a node in a swarm (it has no {STATUS})") from None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError as error:
        raise UserError(f"{path} is not the status of a node: {error}") from error
    return status


def gained(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """What the swarm gave a node, by its metrics: the share of its gradient from outside, in all and by peer, and how
    its held-out pass@1 moved."""
    shares: dict[str, float] = {}
    trained = [row for row in rows if row.get("gradient/external") is not None]
    for row in trained:
        for name, value in row.items():
            if name.startswith("gradient/from/") and value:
                peer = name.removeprefix("gradient/from/")
                shares[peer] = shares.get(peer, 0.0) + value / len(trained)
    held_out = [row["eval/pass@1"] for row in rows if row.get("eval/pass@1") is not None]
    return {
        "rounds": max((row["round"] for row in rows), default=0),
        "external": sum(row["gradient/external"] for row in trained) / len(trained) if trained else None,
        "by_peer": dict(sorted(shares.items(), key=lambda item: -item[1])),
        "held_out": [held_out[0], held_out[-1]] if held_out else [],
    }


def lines(status: Mapping[str, Any], share: float | None) -> list[str]:
    """A few lines for the panel of the live display. `share`: of the gradient, from outside."""
    received, sent = status["received"], status["sent"]
    refused = reasons(status["admission"]["refused"], 3)
    region = f"{status['region']}*" if status["region"] else "all shards"
    parts = [
        f"swarm {status['swarm']} as {status['name']}: "
        f"{status['peers']} peer{'s' * (status['peers'] != 1)} in {region}, "
        f"listening to {len(status['neighbours'])}",
        f"in {received['messages_per_second']:.1f}/s ({size(received['bytes_per_second'])}/s), "
        f"out {sent['messages_per_second']:.1f}/s; {status['admission']['admitted']} admitted"
        + (f", refused: {refused}" if refused else ""),
    ]
    if share is not None:
        parts.append(f"{share:.0%} of this round's gradient came from outside")
    return parts


def screen(folder: Path, status: Mapping[str, Any], now: float) -> Group:
    """The whole of it."""
    age = now - status["time"]
    head = Table.grid(padding=(0, 2))
    received, sent, admission, got = status["received"], status["sent"], status["admission"], status["gained"]

    def row(name: str, text: str) -> None:
        head.add_row(Text(name, "dim"), Text(harmless(text, LONGEST)))

    row("node", f"{status['name']} ({status['id'][:16]}…)")
    row("swarm", status["swarm"] + (" (private)" if status["private"] else ""))
    row("folder", str(folder))
    if age > STALE:
        row("state", f"not running: its last word was {duration(age)} ago")
    elif status["note"]:
        row("state", f"{status['note']} (for {duration(now - (status['silo_since'] or now))})")
    else:
        row("state", f"in touch, {status['links']} link{'s' * (status['links'] != 1)}")
    row("shards", f"own {status['shard']}; looks at {status['region'] + '*' if status['region'] else 'all'}")
    row("peers", f"{status['peers']} there, listening to {len(status['neighbours'])} (wants {status['wanted']})")
    row("in", f"{flow(received)}; {received['overflow']} lost to newer ones")
    row("out", f"{flow(sent)}; {sent['overflow']} lost to newer ones")
    row("pool", f"{status['pool']['rollouts']} rollouts, {status['pool']['live']} live; J = {status['pool']['wanted']}")
    row("admitted", str(admission["admitted"]))
    if status["faults"]:
        row("errors", f"{status['faults']} of this program's own; the first is in its log")
    row("refused", reasons(admission["refused"]) or "none")
    if got["external"] is not None:
        row("gradient", f"{got['external']:.0%} from outside, mean over {got['rounds']} rounds")
    if got["held_out"]:
        row("held-out", f"pass@1 {got['held_out'][0]:.3f} -> {got['held_out'][1]:.3f}")
    return Group(head, Text(), peers(admission["peers"], got["by_peer"], now))


def peers(known: Sequence[Mapping[str, Any]], shares: Mapping[str, float], now: float) -> Table:
    """A row for each peer: what came of it, and what it gave."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("peer", no_wrap=True)
    for name in ("admitted", "gradient", "weight", "last"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("refused")
    for peer in known[:SHOWN]:
        muted = f"muted for {duration(peer['muted'])}; " if peer["muted"] else ""
        share = shares.get(peer["name"], 0.0)
        table.add_row(
            Text(harmless(peer["name"], LONGEST)),
            str(peer["admitted"]),
            f"{share:.1%}" if share else "",
            f"{peer['weight']:.2f}",
            duration(now - peer["last"]),
            Text(harmless(muted + reasons(peer["refused"]), LONGEST)),
        )
    if len(known) > SHOWN:
        table.add_row(Text(f"{len(known) - SHOWN} more", "dim"))
    return table


def reasons(refused: Mapping[str, int], most: int = 100) -> str:
    """Counts by reason, the most frequent first."""
    ordered = sorted(refused.items(), key=lambda item: -item[1])
    return ", ".join(f"{reason} {count}" for reason, count in ordered[:most]) + (", …" if len(ordered) > most else "")


def flow(meter: Mapping[str, Any]) -> str:
    return (
        f"{meter['messages']} ({size(meter['bytes'])}), {meter['messages_per_second']:.1f}/s "
        f"({size(meter['bytes_per_second'])}/s)"
    )


def size(count: float) -> str:
    for unit in ("B", "KB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


def duration(seconds: float) -> str:
    for limit, divisor, unit in ((100, 1, "s"), (6000, 60, "min"), (100 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="its folder (default: the newest in runs/)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    return status_session(args.folder, args.json)
