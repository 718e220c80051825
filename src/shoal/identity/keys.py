"""Who a node is: an Ed25519 key pair, created on first use and kept in a file that only its owner may read.

    identity = Identity.load_or_create(identity_path())
    identity.name                                  # brave-otter-3f2a
    verify(identity.public, identity.sign(data), data)

The key is the identity: it decides which questions a node draws, and it signs rollouts. The name is for people.
"""

import contextlib
import hashlib
import os
import secrets
import stat
import tomllib
from collections.abc import Iterator
from functools import cached_property, lru_cache
from importlib.resources import files
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from shoal.errors import UserError

FILE = "identity"
MAX_BYTES = 1 << 16  # of a key file; a real one has about 120

# The curve is -x² + y² = 1 + D x² y² modulo P (RFC 8032, 5.1).
P = 2**255 - 19
D = -121665 * pow(121666, -1, P) % P

_WORDS = tomllib.loads((files("shoal.identity") / "names.toml").read_text("utf-8"))
ADJECTIVES, ANIMALS = _WORDS["adjectives"].split(), _WORDS["animals"].split()
"""The 256 adjectives and 256 animals of readable names."""


class Identity:
    """A private key, and what follows from it."""

    def __init__(self, private: Ed25519PrivateKey) -> None:
        self._private = private
        self.public: bytes = private.public_key().public_bytes_raw()
        """The public key: 32 bytes by which others know this identity."""

    @classmethod
    def generate(cls) -> Self:
        """A new identity, stored nowhere."""
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path) -> Self:
        """The identity in the file, which is created if there is none.

        Raises `UserError` if others may read the file, if it holds no Ed25519 key, or if it cannot be read or written.
        """
        if not os.path.exists(path):  # Path.exists raises for folders that may not be entered
            with contextlib.suppress(FileExistsError):  # another process was faster
                write_new(path, cls.generate().to_pem())
        return cls.load(path)

    @classmethod
    def load(cls, path: Path) -> Self:
        """The identity in the file. Raises `UserError` as `load_or_create` does."""
        data = read_private(path)
        if b"ENCRYPTED" in data:
            raise UserError(f"{path} is encrypted: decrypt it first (openssl pkey -in FILE -out COPY)")
        try:
            private = load_pem_private_key(data, None)
        except (ValueError, TypeError, UnsupportedAlgorithm) as error:
            raise UserError(f"{path} is damaged: it holds no key; restore a copy, or remove it") from error
        if not isinstance(private, Ed25519PrivateKey):
            raise UserError(f"{path} holds a key of another kind: shoal uses Ed25519")
        return cls(private)

    @property
    def id(self) -> str:
        """The public key in hex, 64 digits."""
        return self.public.hex()

    @cached_property
    def name(self) -> str:
        """The readable name (see `name_of`)."""
        return name_of(self.public)

    def sign(self, data: bytes) -> bytes:
        """The signature (64 bytes) of `data`."""
        return self._private.sign(data)

    def to_pem(self) -> bytes:
        """The private key as PKCS #8 in PEM."""
        return self._private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def name_of(public: bytes) -> str:
    """A name for a public key, as `brave-otter-3f2a`: two words and four hex digits of its hash.

    A name has 32 bits. Among 10,000 nodes, two share a name with a probability of 1 %. Whoever tries four thousand
    million keys gets any name: compare keys where it matters.
    """
    digest = hashlib.blake2b(public, digest_size=4, person=b"shoal name").digest()
    return f"{ADJECTIVES[digest[0]]}-{ANIMALS[digest[1]]}-{digest[2:].hex()}"


def verify(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether `signature` is the signature of `data` by the key `public`.

    False for bytes that are no key or no signature, and for the few weak keys with which anybody can sign.
    """
    try:
        _public_key(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(maxsize=1024)
def _public_key(public: bytes) -> Ed25519PublicKey:
    y = (int.from_bytes(public, "little") & (2**255 - 1)) % P
    if y * (y * y - 1) * (D * y**4 + 2 * y * y - 1) % P == 0:
        raise ValueError("a point of order 1, 2, 4 or 8: some of its signatures verify with any data")
    return Ed25519PublicKey.from_public_bytes(public)


def identity_path() -> Path:
    """`$SHOAL_HOME/identity`, or `identity` in the settings folder: `$XDG_CONFIG_HOME/shoal`, `~/.config/shoal`."""
    home, settings = os.environ.get("SHOAL_HOME"), os.environ.get("XDG_CONFIG_HOME", "")
    try:
        if home:
            return Path(home).expanduser() / FILE
        if Path(settings).is_absolute():  # the XDG specification calls others invalid
            return Path(settings) / "shoal" / FILE
        return Path.home() / ".config" / "shoal" / FILE
    except RuntimeError as error:
        raise UserError("there is no home folder for the identity: set SHOAL_HOME to a folder") from error


def write_new(path: Path, data: bytes) -> None:
    """Creates a file that only its owner may read. Nobody sees half of it, except on a disk without hard links.

    Raises `FileExistsError` if there is one already, and `UserError` if it cannot be written.
    """
    if path.is_dir():
        raise UserError(f"{path} is a folder: name a file")
    with _written_beside(path, data) as temporary:
        try:
            os.link(temporary, path)  # unlike a rename it never replaces
        except FileExistsError:
            raise
        except OSError:  # a disk without links
            _write(path, data)


def replace(path: Path, data: bytes) -> None:
    """Replaces the file by one that only its owner may read, in one step. Raises `UserError`."""
    with _written_beside(path, data) as temporary:
        temporary.replace(path)


@contextlib.contextmanager
def _written_beside(path: Path, data: bytes) -> Iterator[Path]:
    """A file with `data` in the folder of `path`, for as long as the block. Raises `UserError` if anything fails, but
    for a file that is there already."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _write(temporary, data)
        yield temporary
    except FileExistsError:
        raise
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # it would hide the error before it
            temporary.unlink()


def _write(path: Path, data: bytes) -> None:
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def read_private(path: Path) -> bytes:
    """The content of a key file. Raises `UserError` if others may read it unless it is encrypted: they may have."""
    try:
        with path.open("rb") as file:
            mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)
            data = file.read(MAX_BYTES)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    if os.name == "posix" and mode & 0o077 and b"ENCRYPTED" not in data:
        raise UserError(f"others may read the key in {path} (mode {mode:o}): if none has, chmod 600 {path}")
    return data
