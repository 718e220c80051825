"""The secret of a private swarm: without it nobody can tell the swarm's name, its nodes or anything they say.

    secret = read_secret(Path("reef.secret"), "reef")
    data = secret.lock(key, message)      # what crosses the network under the key expression `key`
    secret.unlock(key, data)              # message, or None for what was not locked with this secret under this key

A relay, and whoever listens there, sees the sizes and times of messages, and which connections exchange them. An open
swarm has the secret `OPEN`, which hides nothing and changes nothing.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shoal.errors import UserError

SHORTEST = 12
"""Characters: what is shorter can be guessed by trying."""
SALT = 16
"""Random bytes in front of each locked message."""
OVERHEAD = SALT + 16
"""Bytes that a locked message is longer than what it says."""
_NONCE = bytes(12)


@dataclass(frozen=True)
class Secret:
    """What a secret stands for. Everything is derived from `root`, which is empty for an open swarm."""

    root: bytes = b""

    @property
    def private(self) -> bool:
        return bool(self.root)

    @property
    def context(self) -> bytes:
        """Is signed along with every message, though never sent: a member cannot show a message to another swarm."""
        return self._derive(b"context")

    def prefix(self, swarm: str) -> str:
        """What all key expressions of the swarm begin with."""
        return f"shoal/{self._derive(b'swarm')[:16].hex()}/private" if self.private else f"shoal/{swarm}/open"

    def address(self, id: str) -> str:
        """What stands in key expressions for the node `id`: itself, or 64 hex digits that only members can compute."""
        return self._derive(b"address", bytes.fromhex(id)).hex() if self.private else id

    def lock(self, key: str, data: bytes) -> bytes:
        """`data`, encrypted for the key expression `key`. Each message has a key of its own, so that no nonce repeats
        however long a swarm lives."""
        if not self.private:
            return data
        salt = os.urandom(SALT)
        return salt + self._cipher(salt).encrypt(_NONCE, data, key.encode())

    def unlock(self, key: str, data: bytes) -> bytes | None:
        """What `lock` was given, or None where it was not this secret's or has been changed or moved."""
        if not self.private:
            return data
        try:
            return self._cipher(data[:SALT]).decrypt(_NONCE, data[SALT:], key.encode())
        except InvalidTag:
            return None

    def _cipher(self, salt: bytes) -> ChaCha20Poly1305:
        return ChaCha20Poly1305(self._derive(b"message", salt))

    def _derive(self, purpose: bytes, data: bytes = b"") -> bytes:
        """32 bytes for one purpose; empty for an open swarm."""
        if not self.private:
            return b""
        return hashlib.blake2b(data, digest_size=32, key=self.root, person=b"shoal " + purpose).digest()


OPEN = Secret()
"""That of a swarm which anybody may join."""


def read_secret(path: Path, swarm: str) -> Secret:
    """The secret in a file, its white space apart, for `swarm`. Raises `UserError`."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the secret in {path}: {error}") from error
    if len(text) < SHORTEST:
        raise UserError(
            f"the secret in {path} has {len(text)} characters, and {SHORTEST} are the least; "
            "`openssl rand -hex 16` makes one"
        )
    # Others may try guesses on what they see, slowly: scrypt makes it.
    return Secret(hashlib.scrypt(text.encode(), salt=b"shoal swarm v2 " + swarm.encode(), n=2**14, r=8, p=1, dklen=32))
