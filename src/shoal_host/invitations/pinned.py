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
from shoal.transports.zenoh.session import parse_endpoint
from shoal.untrusted import printable, read_regular
from shoal_host.invitations.entry import Entry
from shoal_host.invitations.invitation import Invitation

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
