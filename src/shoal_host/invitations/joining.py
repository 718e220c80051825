"""`shoal join INVITATION`, and what an invitation says (`--show`): a swarm by what its host has signed."""

import time
from collections.abc import Sequence
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.cli.swarms import is_invitation
from shoal.config.load import make_config, merged
from shoal.errors import UserError
from shoal.identity.keys import name_of
from shoal.untrusted import printable
from shoal_host.invitations.entry import BadEntry, date
from shoal_host.invitations.invitation import Invitation, read_invitation
from shoal_host.invitations.pinned import DIGITS, kept, key_file, known_key

SAID: Final = {
    **{"name": "--swarm", "connect": "the addresses", "suite": "--suite", "only": "--only"},
    **{"sources": "--task or --data", "examples": "--examples", "answer": "--answer"},
}
"""What an invitation says, and what says the same beside it."""


def show_invitation(words: Sequence[str]) -> None:
    """Prints everything that an invitation says. `words`: the invitation, and nothing else. Raises `UserError`."""
    _show(*_opened(words))


def swarm_settings(words: Sequence[str], given: dict[str, Any], quiet: bool) -> dict[str, Any]:
    """What `shoal.cli.swarms.swarm_settings` does for an invitation."""
    invitation, is_new = _opened(words)
    entry = invitation.entry
    asked = given.get("network", {}) | given.get("tasks", {})
    said = [flag for name, flag in SAID.items() if name in asked]
    if said:
        raise UserError(
            f"the invitation to '{entry.name}' says the swarm, where it is and its tasks: leave out {said[0]}"
        )
    make_config(entry.settings, f"the invitation to '{entry.name}'")
    if not quiet:
        _show(invitation, is_new)
    return merged(merged(entry.settings, {"network": kept(invitation)}), given)


def _opened(words: Sequence[str]) -> tuple[Invitation, bool]:
    """The invitation in `words`, which stands alone, and whether its host was not known by its name. Raises
    `UserError`."""
    if len(words) != 1 or not is_invitation(words[0]):
        raise UserError("an invitation stands alone: it has the addresses, and it is one word")
    try:
        invitation = read_invitation(words[0], time.time())
    except BadEntry as error:
        raise UserError(f"this invitation cannot be used: {error}") from None
    entry = invitation.entry
    known = known_key(entry.name)
    if known not in (None, entry.key):
        raise UserError(
            f"ANOTHER HOST: the name '{entry.name}' belongs to the key {known[:DIGITS]}, which you joined or watched "
            f"before, and this invitation is of {entry.key[:DIGITS]}: if you trust that one, remove "
            f"{key_file(entry.name)}"
        )
    return invitation, known is None


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
    row("swarm", entry.name + " (private)" * bool(invitation.secret))
    if entry.certificate:
        row("certificate", f"SHA-256 {entry.certificate}")
    row("tasks", str(entry.tasks))
    row("relays", *entry.relays)
    judges = (address.partition("#") for address in entry.judges)
    row("judges", *(f"{url} ({name_of(bytes.fromhex(key))})" for url, _, key in judges))
    row("holds", f"signed on {date(entry.signed)}, until {date(entry.expires)}")
    head = Text(entry.name, "bold").append(f"  {printable(entry.about)}" if entry.about else "", "not bold")
    Console(highlight=False).print(Group(head, grid))
