"""`shoal join INVITATION`, and what an invitation says (`--show`): a swarm by what its host has signed."""

import argparse
import time
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.config.load import make_config, merged
from shoal.errors import UserError
from shoal.identity.keys import identity_path, name_of
from shoal.invitations.entry import BadEntry, Entry, date
from shoal.invitations.invitation import Invitation, is_invitation, read_invitation
from shoal.invitations.pinned import DIGITS, KNOWN, kept, known_swarms, remember
from shoal.untrusted import printable

YOURS: Final = "not named by the host: each node gives its own (--data, --task, --suite or --config)"


def show_invitation(words: Sequence[str]) -> int:
    """Prints everything that an invitation says. `words`: the invitation, and nothing else. Raises `UserError`."""
    _show(*_opened(words))
    return 0


def swarm_settings(args: argparse.Namespace, given: dict[str, Any]) -> dict[str, Any] | None:
    """The settings of the swarm of an invitation among the words of `shoal join` or `shoal human`, once it is shown who
    hosts it and what it asks for; None if they are addresses. `given`: the flags, which may not say the same. Raises
    `UserError`."""
    words: Sequence[str] = args.endpoints
    if not any(map(is_invitation, words)):
        return None
    invitation, is_new = _opened(words)
    entry = invitation.entry
    _check_given(entry, given, args.config is not None)
    make_config(entry.settings, f"the invitation to '{entry.name}'")
    return merged(entry.settings, {"network": _taken(invitation, is_new, args.quiet)})


def invited_network(words: Sequence[str]) -> dict[str, Any]:
    """The settings of `[network]` by which the swarm of an invitation is heard without joining it, once it is shown
    whose swarm that is. `words`: the invitation, and nothing else. Raises `UserError`."""
    invitation, is_new = _opened(words)
    return {**invitation.entry.settings["network"], **_taken(invitation, is_new)}


def _taken(invitation: Invitation, is_new: bool, quiet: bool = False) -> dict[str, str]:
    """The files of the invitation as `[network]` has them, once it is shown."""
    if not quiet:
        _show(invitation, is_new)
    files = kept(invitation)
    remember(invitation.entry)
    return files


def _opened(words: Sequence[str]) -> tuple[Invitation, bool]:
    """The invitation in `words`, which stands alone, and whether its host was not known by its name. Raises
    `UserError`."""
    if len(words) != 1 or not is_invitation(words[0]):
        raise UserError("an invitation stands alone: it has the addresses, and it is one word")
    try:
        invitation = read_invitation(words[0], time.time())
    except BadEntry as error:
        raise UserError(f"this invitation cannot be used: {error}") from None
    entry, known = invitation.entry, known_swarms()
    if known.get(entry.name, entry.key) != entry.key:
        raise UserError(
            f"ANOTHER HOST: the name '{entry.name}' belongs to the key {known[entry.name][:DIGITS]}, which you joined "
            f"or watched before, and this invitation is of {entry.key[:DIGITS]}: if you trust that one, remove the "
            f"line of '{entry.name}' from {identity_path().with_name(KNOWN)}"
        )
    return invitation, entry.name not in known


def _check_given(entry: Entry, given: dict[str, Any], has_file: bool) -> None:
    """Raises `UserError` if flags say what the entry says, or if nobody says which tasks."""
    said = [name for name in ("name", "connect") if name in given.get("network", {})]
    said += [name for name in ("suite", "only", "sources", "examples", "answer") if name in given.get("tasks", {})]
    if entry.tasks is None:
        if not said and not has_file:
            raise UserError(
                f"the host of '{entry.name}' does not name the tasks: give them by --data, --task, --suite or "
                "--config; its rules say which (`shoal join --show INVITATION`)"
            )
        said = [name for name in said if name in ("name", "connect")]
    if said:
        flag = "--task or --data" if said[0] == "sources" else f"--{said[0]}"
        raise UserError(f"the invitation to '{entry.name}' says the swarm, where it is and its tasks: leave out {flag}")


def _show(invitation: Invitation, is_new: bool) -> None:
    """Prints all that an invitation says, as text of a stranger."""
    entry = invitation.entry
    grid = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False, show_header=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")

    def row(label: str, *values: str) -> None:
        for value in values:
            grid.add_row(label, Text(printable(value, 400)))
            label = ""

    state = "new: the name belongs to this key from your first join on" if is_new else "known"
    row("host", f"{entry.host}, key {entry.key[:DIGITS]} ({state})")
    row("swarm", entry.swarm + " (private)" * bool(invitation.secret))
    if entry.certificate:
        row("certificate", f"SHA-256 {entry.certificate}")
    row("tasks", str(entry.tasks or YOURS))
    row("relays", *entry.relays)
    row("judges", *(_judge(address) for address in entry.judges))
    row("rules", *entry.rules)
    row("holds", f"signed on {date(entry.signed)}, until {date(entry.expires)}")
    head = Text(entry.name, "bold").append(f"  {printable(entry.about)}" if entry.about else "", "not bold")
    Console(highlight=False).print(Group(head, grid))


def _judge(address: str) -> str:
    url, _, key = address.partition("#")
    return f"{url} ({name_of(bytes.fromhex(key))})"
