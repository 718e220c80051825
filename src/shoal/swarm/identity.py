"""Who a node is: an Ed25519 key, made on first use, and a readable name that follows from it.

    identity = Identity.load_or_create()
    identity.name                        # brave-otter-3f2a19
    signature = identity.sign(data)
    verify(identity.public, signature, data)   # True

The key is the identity. The name is for people: it has 36 bits of the key's hash, so that two strangers hardly ever
share one by chance, but somebody with patience could make a key with a given name.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import json
import os
import stat
import sys
from pathlib import Path

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from shoal.errors import UserError

HELP = """Shows who this node is in a swarm, or takes its key elsewhere.

  shoal id                                    its name and public key
  shoal id --export me.pem --passphrase-file secret
  shoal id --import me.pem --passphrase-file secret"""

FIRST = """able agile alert amber azure blue bold brave brief bright brisk calm clear clever cool coral crisp deep deft
dusky eager early fair fast fine fleet fond free fresh gentle glad golden grand green happy hardy jade jolly keen kind
light lively lucid lunar merry mild neat nimble noble pale plain polar proud quick quiet rapid ruby silver sleek steady
sunny swift tidal warm wise""".split()
SECOND = """anchovy bass bream carp char cisco cod coral crab dab dace darter dolphin dory drum eel egret flounder fluke
gannet garfish goby grouper guppy haddock hake halibut heron herring kelp koi krill lamprey ling loach mackerel manta
marlin minnow mullet mussel narwhal octopus orca oscar osprey otter oyster perch pike plaice puffin ray remora roach
salmon sardine seal shad shrimp smelt sole squid""".split()


class Identity:
    """A key pair."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key
        self.public = key.public_key().public_bytes_raw()
        """32 bytes."""
        self.id = self.public.hex()
        self.name = name_of(self.public)

    @classmethod
    def generate(cls) -> Identity:
        return cls(Ed25519PrivateKey.generate())

    @classmethod
    def load_or_create(cls, path: Path | None = None) -> Identity:
        """The identity in `path` (default: `default_path()`), made now if there is none. Raises `UserError`."""
        path = path or default_path()
        if not path.exists():
            identity = cls.generate()
            _write(path, identity.pem())
            return identity
        if sys.platform != "win32" and stat.S_IMODE(path.stat().st_mode) & 0o077:
            raise UserError(f"others may read the key in {path}: chmod 600 {path}, or make another by moving it away")
        return cls.read(path)

    @classmethod
    def read(cls, path: Path, passphrase: bytes | None = None) -> Identity:
        """The identity in a PEM file. Raises `UserError`."""
        try:
            key = load_pem_private_key(path.read_bytes(), passphrase)
        except OSError as error:
            raise UserError(f"cannot read {path}: {error.strerror}") from error
        except TypeError:
            need = "needs its passphrase (--passphrase-file)" if passphrase is None else "has no passphrase"
            raise UserError(f"the key in {path} {need}") from None
        except (ValueError, UnsupportedAlgorithm):
            wrong = "the passphrase is wrong, or " if passphrase else ""
            raise UserError(f"{wrong}{path} holds no private key (PEM)") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise UserError(f"the key in {path} is not an Ed25519 key")
        return cls(key)

    def sign(self, data: bytes) -> bytes:
        """64 bytes."""
        return self._key.sign(data)

    def pem(self, passphrase: bytes | None = None) -> bytes:
        """The private key in PKCS #8, encrypted if there is a passphrase."""
        how = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
        return self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, how)


@functools.lru_cache(maxsize=8192)
def name_of(public: bytes) -> str:
    """The readable name of a public key."""
    digest = hashlib.blake2b(public, digest_size=8, person=b"shoal name").digest()
    return f"{FIRST[digest[0] % len(FIRST)]}-{SECOND[digest[1] % len(SECOND)]}-{digest[2:5].hex()}"


def verify(public: bytes, signature: bytes, data: bytes) -> bool:
    """Whether the holder of `public` signed `data`. What is no key or no signature verifies nothing."""
    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


def default_path() -> Path:
    """`$SHOAL_HOME/identity.pem`, or in the user's configuration folder."""
    home = os.environ.get("SHOAL_HOME")
    config = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")
    return (Path(home) if home else config / "shoal") / "identity.pem"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--identity", type=Path, metavar="FILE", help=f"the key (default: {default_path()})")
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--export", type=Path, metavar="FILE", help="write the key there, for another machine")
    what.add_argument("--import", type=Path, metavar="FILE", dest="take", help="take the key in this file")
    parser.add_argument("--passphrase-file", type=Path, metavar="FILE", help="what the exported key is encrypted with")
    parser.add_argument("--force", action="store_true", help="import over another identity, which is kept beside it")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def command(args: argparse.Namespace) -> int:
    """`shoal id`."""
    path = args.identity or default_path()
    passphrase = _passphrase(args.passphrase_file)
    identity = _take(args.take, path, passphrase, args.force) if args.take else Identity.load_or_create(path)
    if args.export:
        if args.export.exists():
            raise UserError(f"{args.export} exists already: choose another file")
        _write(args.export, identity.pem(passphrase))
    if args.json:
        print(json.dumps({"name": identity.name, "public": identity.id, "file": str(path)}))
    else:
        print(f"name    {identity.name}\npublic  {identity.id}\nfile    {path}")
        if args.export:
            print(f"wrote   {args.export}" + ("" if passphrase else " (not encrypted: who has it is this node)"))
    return 0


def _take(source: Path, path: Path, passphrase: bytes | None, force: bool) -> Identity:
    """Has `path` hold the identity in `source`; another one that is there is moved aside, if `force` allows it."""
    identity = Identity.read(source, passphrase)
    if path.exists():
        before = Identity.load_or_create(path)
        if before.public == identity.public:
            return identity
        if not force:
            raise UserError(f"{path} holds another identity ({before.name}): --force moves it aside")
        path.rename(path.with_name(f"{path.name}.{before.name}"))
    _write(path, identity.pem())
    return identity


def _passphrase(file: Path | None) -> bytes | None:
    if file is None:
        return None
    try:
        text = file.read_bytes().strip()
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    if not text:
        raise UserError(f"the passphrase in {file} is empty")
    return text


def _write(path: Path, pem: bytes) -> None:
    """Writes a key that nobody else may read, from its first byte on."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(handle, "wb") as file:
            file.write(pem)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror}") from error
