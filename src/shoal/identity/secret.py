"""The secret of a private swarm: without it nobody learns the swarm's name, its nodes or anything that they say.

    secret = read_secret(Path("lagoon.secret"), "lagoon")
    data = secret.lock(key, message)      # what crosses the network under the key expression `key`
    secret.unlock(key, data)              # the message, or None if another secret or key expression locked it

A relay, and whoever listens there, sees the sizes and times of messages, and which connections exchange them. An open
swarm has the secret `OPEN`, which hides nothing and changes nothing.
"""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305

from shoal.errors import UserError

SHORTEST = 12  # characters; a shorter secret can be found by trial
SALT = 16  # random bytes in front of each locked message
OVERHEAD = SALT + 16  # bytes by which locking makes a message longer
_NONCE = bytes(12)


@dataclass(frozen=True)
class Secret:
    """The keys of a swarm, all derived from `root`, which is empty for an open swarm."""

    root: bytes = b""

    @property
    def private(self) -> bool:
        return bool(self.root)

    @property
    def context(self) -> bytes:
        """What is signed with every message and never sent: no member can pass a message on to another swarm."""
        return self._derive(b"context")

    def prefix(self, swarm: str) -> str:
        """The beginning of all key expressions of the swarm."""
        return f"shoal/{self._derive(b'swarm')[:16].hex()}/private" if self.private else f"shoal/{swarm}/open"

    def address(self, id: str) -> str:
        """What key expressions call the node `id`: its id, or 64 hex digits that only members can compute."""
        return self._derive(b"address", bytes.fromhex(id)).hex() if self.private else id

    def lock(self, key: str, data: bytes) -> bytes:
        """`data`, encrypted for the key expression `key`. Each message has a key of its own, so no nonce ever
        repeats."""
        if not self.private:
            return data
        salt = os.urandom(SALT)
        return salt + self._cipher(salt).encrypt(_NONCE, data, key.encode())

    def unlock(self, key: str, data: bytes) -> bytes | None:
        """The message that was locked, or None if it has another secret or key expression, or was changed."""
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


OPEN = Secret()  # the secret of a swarm that anybody may join


def read_secret(path: Path, swarm: str) -> Secret:
    """The secret of `swarm`, from a file. Raises `UserError`."""
    try:
        text = path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the secret in {path}: {error}") from error
    if len(text) < SHORTEST:
        raise UserError(
            f"the secret in {path} has {len(text)} characters; at least {SHORTEST} are needed; "
            "`openssl rand -hex 16` makes one"
        )
    # scrypt is slow, so that others cannot try many guesses on what they see.
    return Secret(hashlib.scrypt(text.encode(), salt=b"shoal swarm v2 " + swarm.encode(), n=2**14, r=8, p=1, dklen=32))
