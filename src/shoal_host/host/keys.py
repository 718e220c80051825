"""What a host must not lose: its key, the relay's certificate, the secret of a private swarm, the judge's key.

They are made at the first start and stay in the folder. Whoever joined knows the certificate and the keys. If this
machine gets a new address, the certificate is made anew, and earlier invitations stop working.
"""

import datetime
import hashlib
import ipaddress
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from shoal.errors import UserError
from shoal.identity.keys import Identity, replace
from shoal.runs.disk import disk_errors
from shoal.untrusted import read_regular

YEARS: Final = 20
MAX_BYTES: Final = 65_536
LOCAL: Final = ("127.0.0.1", "localhost")
"""By which the pages on this machine reach the relay."""


@dataclass(frozen=True)
class HostKeys:
    """Keys and files of a host."""

    identity: Identity
    """Signs invitations."""
    judge: Identity
    certificate: Path
    certificate_key: Path
    fingerprint: str
    """SHA-256 of the certificate (DER), in hex."""
    secret_file: Path | None
    secret: str
    token: Path
    """What others need to open the pages, if these listen elsewhere than on this machine alone."""


def host_keys(folder: Path, reached: Sequence[str], private: bool) -> HostKeys:
    """The keys in `folder`, which are made where they are missing. Raises `UserError`."""
    certificate, key = folder / "relay.pem", folder / "relay.key"
    names = [*dict.fromkeys([*reached, *LOCAL])]
    if not _fits(certificate, names) or not key.exists():
        _make_certificate(certificate, key, names)
    secret_file = folder / "secret" if private else None
    for path in (folder / "token", *([secret_file] if secret_file else [])):
        if not path.exists():
            replace(path, f"{secrets.token_urlsafe(18)}\n".encode())
    with disk_errors(folder / "judge"):
        (folder / "judge").mkdir(mode=0o700, exist_ok=True)
    return HostKeys(
        Identity.load_or_create(folder / "identity"),
        Identity.load_or_create(folder / "judge" / "identity"),
        certificate,
        key,
        hashlib.sha256(_read(certificate).public_bytes(serialization.Encoding.DER)).hexdigest(),
        secret_file,
        secret_file.read_text(encoding="utf-8").strip() if secret_file else "",
        folder / "token",
    )


def _make_certificate(certificate: Path, key: Path, names: Sequence[str]) -> None:
    """A certificate that vouches for itself, for these names and addresses. Whoever joins knows it by its hash."""
    private = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal relay")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(private.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=2))  # clocks differ
        .not_valid_after(now + datetime.timedelta(days=365 * YEARS))
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([_general(each) for each in names]), critical=False)
        .sign(private, hashes.SHA256())
    )
    plain = serialization.NoEncryption()
    certificate.unlink(missing_ok=True)  # an old one would not fit the key if this is interrupted
    replace(key, private.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
    replace(certificate, made.public_bytes(serialization.Encoding.PEM))


def _fits(certificate: Path, names: Sequence[str]) -> bool:
    """Whether there is a certificate for all of these names."""
    if not certificate.exists():
        return False
    try:
        found = _read(certificate).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        raise UserError(f"{certificate} names no address: move it away, and a new one is made") from None
    return set(map(_general, names)) <= set(found)


def _general(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _read(certificate: Path) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(read_regular(certificate, MAX_BYTES))
    except (OSError, ValueError) as error:
        raise UserError(
            f"{certificate} is no certificate that can be read ({error}): restore a copy, or remove it to have a new "
            "one, which earlier invitations do not fit"
        ) from None
