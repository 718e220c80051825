"""`shoal status`: the state of a node that joined a swarm, as text for a terminal or as JSON."""

import argparse
import json
import shlex
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.config.display_name import harmless, isolated
from shoal.errors import UserError
from shoal.runs.folder import STATUS, read_warnings
from shoal.runs.swarm_status import STALE, all_refused, read_status, reasons, shortened, size
from shoal.untrusted import json_safe, printable

HELP = """Shows the state of a node of `shoal join`: its peers, the traffic, and what was refused and why.

  shoal status                  the node that runs in this folder
  shoal status runs/one --json"""
MAX_PEERS = 20
"""In the table."""
MAX_TEXT = 400
"""Characters of a name or a reason."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", nargs="?", type=Path, metavar="DIR", help="its folder (default: the newest in runs/)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    folder = args.folder or newest()
    status = read_status(folder)
    status["warnings"] = read_warnings(folder)
    if args.json:
        print(json.dumps(json_safe({"folder": str(folder), **status})))
    else:
        Console().print(screen(folder, status, time.time()))
    return 0


def newest() -> Path:
    """The folder in `runs/` with the newest status. Raises `UserError` if there is none."""
    found = list(Path("runs").glob(f"*/{STATUS}"))
    if not found:
        raise UserError(
            "no node runs in this folder: start one with `shoal join`, or name its folder: shoal status DIR"
        )
    return max(found, key=lambda path: path.lstat().st_mtime).parent


def screen(folder: Path, status: Mapping[str, Any], now: float) -> Group:
    """The whole report. Texts in it cannot steer the terminal."""
    head = Table.grid(padding=(0, 2))
    age, at, admission = now - status["time"], shlex.quote(str(folder)), status["admission"]
    ended = status.get("ended", False)
    if ended:
        state = f"ended {duration(age)} ago; all below is its last state"
    elif age > STALE:
        state = f"not running: its last status is from {duration(age)} ago"
    elif status["silo_since"]:
        state = f"{status['note']} (for {duration(now - status['silo_since'])})"
    else:
        state = f"in touch, {status['links']} link{'s' * (status['links'] != 1)}"
    wants = f" (wants {status['wanted']})" if status["wanted"] else ""
    listening = f", listening to {len(status['neighbours'])}{wants}" if status["neighbours"] or wants else ""
    pool = status["pool"]
    rows = {
        "node": f"{status['name']} ({status['id'][:16]}…)",
        "called": isolated(display) if (display := harmless(status.get("display_name"))) else "",
        "swarm": status["swarm"] + (" (private)" if status["private"] else ""),
        "folder": str(folder),
        "state": state,
        "note": status["note"] if status["note"] not in state else "",
        "peers": f"{status['peers']} there{listening}",
        "in": _flow(status["received"]),
        "out": _flow(status["sent"]),
        "pool": f"{pool['rollouts']} rollouts, {pool['live']} live; J = {pool['wanted']}",
        "admitted": str(admission["admitted"]),
        "contribution": f"{share:.0%} of the last round's gradient is peers'"
        if (share := status.get("contribution")) is not None
        else "",
        "taken out": f"of right answers: {short}" if (short := shortened(status.get("shortened", {}))) else "",
        "errors": f"{status['faults']} of this program itself; the first: {status.get('first_fault') or 'in its log'}"
        if status["faults"]
        else "",
        "refused": reasons(all_refused(status)) or "nothing",
    }
    warnings = [("warning", warning) for warning in status["warnings"]]
    gone = ended or age > STALE
    allow_code = " --allow-code" if status.get("code") else ""
    step = f"goes on with it: shoal join --resume {at}{allow_code}" if gone else f"shows it live: shoal watch {at}"
    for name, text in [*rows.items(), *warnings, ("next", step)]:
        if text:
            head.add_row(Text(name, "dim"), Text(text if name == "called" else printable(text, MAX_TEXT)))
    return Group(head, Text(), peers(admission["peers"], now))


def _flow(flow: Mapping[str, Any]) -> str:
    return f"{flow['messages']} ({size(flow['bytes'])}); {flow['overflow']} replaced by newer ones"


def peers(known: Sequence[Mapping[str, Any]], now: float) -> Table:
    """A row for each peer: what it sent, and what it calls itself."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("peer", "admitted", "last"):
        table.add_column(name, justify="left" if name == "peer" else "right", no_wrap=True)
    table.add_column("refused")
    table.add_column("called")  # the last one: a name may go from right to left
    for peer in known[:MAX_PEERS]:
        muted = f"muted for {duration(peer['muted'])}; " if peer["muted"] else ""
        table.add_row(
            Text(printable(peer["name"], MAX_TEXT)),
            str(peer["admitted"]),
            duration(now - peer["last"]),
            Text(printable(muted + reasons(peer["refused"]), MAX_TEXT)),
            Text(isolated(harmless(peer.get("display_name")))),
        )
    if len(known) > MAX_PEERS:
        table.add_row(Text(f"{len(known) - MAX_PEERS} more", "dim"))
    return table


def duration(seconds: float) -> str:
    """Seconds with the unit that suits them: 42 s, 12 min."""
    for limit, divisor, unit in ((100, 1, "s"), (6000, 60, "min"), (100 * 3600, 3600, "h")):
        if seconds < limit:
            return f"{max(0.0, seconds) / divisor:.0f} {unit}"
    return f"{seconds / 86400:.0f} d"
