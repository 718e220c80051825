"""`shoal join INVITATION`, and what an invitation says (`--show`): a swarm by what its host has signed."""

import hashlib
import ssl
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from shoal.config.load import make_config, merged
from shoal.errors import UserError
from shoal.identity.keys import identity_path, name_of, replace
from shoal.transports.zenoh.session import parse_endpoint
from shoal.untrusted import printable, read_regular
from shoal_host.invitations.entry import BadEntry, Entry, date
from shoal_host.invitations.invitation import PREFIX, Invitation, read_invitation

DIGITS: Final = 16
"""Hex digits of a key that stand for the whole: nobody makes another key that begins so."""
FOLDER: Final = "swarms"
PATIENCE: Final = 5.0
"""Seconds that a relay has to show its certificate."""
MAX_BYTES: Final = 65_536
"""Of a certificate's file."""


def known_key(name: str) -> str | None:
    """The key that a swarm's name belongs to; None if nobody joined it here. Raises `UserError`."""
    path = key_file(name)
    try:
        return read_regular(path, MAX_BYTES).decode(errors="replace").strip()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def key_file(name: str) -> Path:
    """Where the key is kept that a swarm's name belongs to."""
    return identity_path().with_name(FOLDER) / f"{name}.key"


def kept(invitation: Invitation) -> dict[str, str]:
    """The settings of `[network]` for the certificate and the secret, each of which is kept in a file beside the
    identity. From now on the name belongs to the host. Raises `UserError` if no relay shows the certificate, if another
    secret is kept already, or if a file cannot be written."""
    entry, secret = invitation.entry, invitation.secret
    folder = identity_path().with_name(FOLDER)
    name = f"{entry.name}-{entry.key[:DIGITS]}"
    found = {}
    if entry.certificate:
        path = folder / f"{name}-{entry.certificate[:16]}.pem"
        if _fingerprint_in(path) != entry.certificate:
            replace(path, _fetched(entry).encode())
        found["tls"] = str(path)
    if secret:
        path, data = folder / f"{name}.secret", f"{secret}\n".encode()
        if path.exists() and read_regular(path, MAX_BYTES) != data:
            raise UserError(
                f"this invitation has another secret than the one that you have for '{entry.name}', and hosts do not "
                f"sign secrets: ask the host; if it has a new one, delete {path}"
            )
        replace(path, data)
        found["secret_file"] = str(path)
    replace(key_file(entry.name), f"{entry.key}\n".encode())
    return found


def _fetched(entry: Entry) -> str:
    """The certificate (PEM) of the entry, from the first of its relays that shows one. Raises `UserError` if none does,
    or if it is another one."""
    shown = next(filter(None, map(shown_certificate, entry.relays)), None)
    if shown is None:
        raise UserError(
            f"no relay of '{entry.name}' answers by TLS in {PATIENCE:g} s ({printable(', '.join(entry.relays), 200)}): "
            "does it run, and is this machine in a network that reaches it?"
        )
    if fingerprint(shown) != entry.certificate:
        raise UserError(
            f"a relay shows another certificate than the host of '{entry.name}' names: somebody stands between, or the "
            f"host has a new one; ask the host for a new invitation ({printable(', '.join(entry.relays), 200)})"
        )
    return shown


def shown_certificate(endpoint: str) -> str | None:
    """The certificate (PEM) that a relay shows, whatever it is; None if there is none within `PATIENCE` seconds."""
    host, _, port = parse_endpoint(endpoint).partition("/")[2].rpartition(":")
    try:
        return ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=PATIENCE)
    except (OSError, ValueError):
        return None


def _fingerprint_in(path: Path) -> str:
    """That of the certificate in a file; "" if there is none."""
    try:
        return fingerprint(read_regular(path, MAX_BYTES).decode())
    except (OSError, ValueError):
        return ""


def fingerprint(pem: str) -> str:
    """SHA-256 of a certificate. Raises `ValueError` for what is none."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


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
    """The invitation in `words`, and whether its host was not known by its name. Raises `UserError`."""
    pasted = "".join("".join(words).split()).upper()  # perhaps behind `shoal join`, or in a mail's lines
    try:
        invitation = read_invitation(PREFIX + pasted.rpartition(PREFIX)[2], time.time())
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

    state = "new: once you join, the name belongs to this key alone" if is_new else "known"
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
