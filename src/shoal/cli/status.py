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
from shoal.display.figures import clock
from shoal.errors import UserError
from shoal.runs.folder import STATUS, read_warnings
from shoal.runs.swarm_status import STALE, all_refused, limited, read_status, reasons, shortened, size
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
    status = read_status(folder) | {"warnings": read_warnings(folder)}
    if args.json:
        print(json.dumps(json_safe({"folder": str(folder), **status})))
    else:
        Console().print(screen(folder, status, time.time()))
    return 0


def newest() -> Path:
    """The folder in `runs/` with the newest status. Raises `UserError` if there is none."""
    if found := list(Path("runs").glob(f"*/{STATUS}")):
        return max(found, key=lambda path: path.lstat().st_mtime).parent
    raise UserError("no node runs in this folder: start one with `shoal join`, or name its folder: shoal status DIR")


def screen(folder: Path, status: Mapping[str, Any], now: float) -> Group:
    """The whole report. Texts in it cannot steer the terminal."""
    age, at, admission = now - status["time"], shlex.quote(str(folder)), status["admission"]
    pool, received, sent = status["pool"], status["received"], status["sent"]
    gone = status.get("ended", False) or age > STALE
    if gone:
        state = f"{'ended' if status.get('ended') else 'not running: its last status is from'} {clock(age)} ago"
    elif status["silo_since"]:
        state = f"{status['note']} (for {clock(now - status['silo_since'])})"
    else:
        state = f"in touch, {status['links']} link{'s' * (status['links'] != 1)}"
    listening = f", listening to {len(status['neighbours'])}" if status["neighbours"] else ""
    taken = shortened(status.get("shortened", {}))
    limits, by = limited(status), limited(status, which="limited_by")
    step = f"shows it live: shoal watch {at}"
    if gone:
        step = f"goes on with it: shoal join --resume {at}" + (" --allow-code" if status.get("code") else "")
    rows = [
        ("node", f"{status['name']} ({status['id'][:16]}…)"),
        ("swarm", status["swarm"] + (" (private)" if status["private"] else "")),
        ("state", state),
        ("note", status["note"] if status["note"] not in state else ""),
        ("peers", f"{status['peers']} there{listening}"),
        ("messages", f"in {received['messages']} ({size(received['bytes'])}), out {sent['messages']}"),
        ("pool", f"{pool['rollouts']} rollouts, {pool['live']} live; J = {pool['wanted']}"),
        ("admitted", str(admission["admitted"])),
        ("taken out", f"of right answers: {taken}" if taken else ""),
        ("limited", limits and f"{limits}: planted text goes with a reward, so nothing is learned from it for a time"),
        ("limited by", by and f"{by}: they say that these go with its rewards, and learn nothing from it for a time"),
        ("refused", reasons(all_refused(status)) or "nothing"),
        ("errors", f"{status['faults']} of this program itself; the first: {status.get('first_fault')}"),
        *(("warning", warning) for warning in status["warnings"]),
        ("next", step),
    ]
    head = Table.grid(padding=(0, 2))
    for name, text in rows:
        if text and (name != "errors" or status["faults"]):
            head.add_row(Text(name, "dim"), Text(printable(text, MAX_TEXT)))
    return Group(head, Text(), peers(admission["peers"], now))


def peers(known: Sequence[Mapping[str, Any]], now: float) -> Table:
    """A row for each peer: what it sent, and what it calls itself."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, header_style="dim")
    for name in ("peer", "admitted", "last", "refused", "called"):  # the last one may go from right to left
        table.add_column(name, justify="right" if name in ("admitted", "last") else "left")
    for peer in known[:MAX_PEERS]:
        muted = f"muted for {clock(peer['muted'])}; " if peer["muted"] else ""
        table.add_row(
            Text(printable(peer["name"], MAX_TEXT)),
            str(peer["admitted"]),
            clock(max(0.0, now - peer["last"])),
            Text(printable(muted + reasons(peer["refused"]), MAX_TEXT)),
            Text(isolated(harmless(peer.get("display_name")))),
        )
    if len(known) > MAX_PEERS:
        table.add_row(Text(f"{len(known) - MAX_PEERS} more", "dim"))
    return table
