"""Keeps what an invitation brings along: its host's key, the relay's certificate, a private swarm's secret.

    settings = kept(invitation)        # {"tls": FILE, "secret_file": FILE}, as `[network]` has them

An invitation has only the certificate's fingerprint. So the certificate is fetched from the relay once, without trust,
and kept if it has that fingerprint. From then on the node trusts this certificate and no other for these relays.

Names of swarms are not unique. From the first time that a name is joined, it belongs to its host's key.
"""

import hashlib
import ssl
from pathlib import Path
from typing import Final

from shoal.errors import UserError
from shoal.identity.keys import identity_path, replace
from shoal.invitations.entry import Entry
from shoal.invitations.invitation import Invitation
from shoal.transports.zenoh.session import parse_endpoint
from shoal.untrusted import printable, read_regular

KNOWN: Final = "known_swarms"
MAX_KNOWN: Final = 2**20
"""Bytes of the file of known names."""
DIGITS: Final = 16
"""Hex digits of a key that stand for the whole: nobody makes another key that begins so."""
FOLDER: Final = "swarms"
PATIENCE: Final = 5.0
"""Seconds that a relay has to show its certificate."""
MAX_BYTES: Final = 65_536
"""Of a certificate's file."""


def known_swarms() -> dict[str, str]:
    """The key that each known name belongs to. Raises `UserError` if the file is damaged."""
    path = identity_path().with_name(KNOWN)
    if not path.exists():
        return {}
    try:
        known = dict(line.split() for line in read_regular(path, MAX_KNOWN).decode().splitlines() if line.strip())
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except ValueError:
        raise UserError(f"{path} is damaged: each line must have a swarm's name and its host's key") from None
    return known


def remember(entry: Entry) -> None:
    """From now on the entry's name belongs to its host. Raises `UserError`."""
    known = known_swarms() | {entry.name: entry.key}
    lines = "".join(f"{name} {key}\n" for name, key in sorted(known.items()))
    replace(identity_path().with_name(KNOWN), lines.encode())


def kept(invitation: Invitation) -> dict[str, str]:
    """The settings of `[network]` for the certificate and the secret, each of which is kept in a file beside the
    identity. Raises `UserError` if no relay shows the certificate, if another secret is kept already, or if a file
    cannot be written."""
    entry, secret = invitation.entry, invitation.secret
    folder = identity_path().with_name(FOLDER)
    name = f"{entry.name}-{entry.key[:DIGITS]}"
    found = {}
    if entry.certificate:
        path = folder / f"{name}-{entry.certificate[:16]}.pem"
        if _fingerprint_in(path) != entry.certificate:
            replace(path, ssl.DER_cert_to_PEM_cert(_fetched(entry, PATIENCE)).encode())
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
    return found


def _fetched(entry: Entry, patience: float) -> bytes:
    """The certificate (DER) of the entry, from the first of its relays that shows one. Raises `UserError` if none does,
    or if it is another one."""
    for relay in entry.relays:
        shown = shown_certificate(relay, patience)
        if shown is None:
            continue
        if hashlib.sha256(shown).hexdigest() != entry.certificate:
            raise UserError(
                f"{printable(relay, 120)} shows another certificate than the host of '{entry.name}' names: somebody "
                "stands between, or the host has a new one; ask the host for a new invitation"
            )
        return shown
    raise UserError(
        f"no relay of '{entry.name}' answers by TLS in {patience:g} s ({printable(', '.join(entry.relays), 200)}): "
        "does it run, and is this machine in a network that reaches it?"
    )


def shown_certificate(endpoint: str, patience: float) -> bytes | None:
    """The certificate (DER) that a relay shows, whatever it is; None if there is none within `patience` seconds."""
    host, _, port = parse_endpoint(endpoint).partition("/")[2].rpartition(":")
    try:
        return ssl.PEM_cert_to_DER_cert(ssl.get_server_certificate((host.strip("[]"), int(port)), timeout=patience))
    except (OSError, ValueError):
        return None


def _fingerprint_in(path: Path) -> str:
    """SHA-256 of the certificate in a PEM file; "" if there is none."""
    try:
        return hashlib.sha256(ssl.PEM_cert_to_DER_cert(read_regular(path, MAX_BYTES).decode())).hexdigest()
    except (OSError, ValueError):
        return ""
