"""The secret of a private swarm: who has another one neither sees its nodes nor is heard by them."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from shoal.errors import UserError

SHORTEST = 12
"""Characters: what is shorter can be guessed by trying."""


@dataclass(frozen=True)
class Secret:
    """What a secret stands for where others may see it, and where they may not."""

    tag: str
    """Stands in key expressions in the place of "open". Others may try guesses on it, slowly: scrypt makes it."""
    context: bytes
    """Is signed along with every message, though never sent: without it none verifies."""


OPEN = Secret("open", b"")
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
    key = hashlib.scrypt(text.encode(), salt=b"shoal swarm " + swarm.encode(), n=2**14, r=8, p=1, dklen=40)
    return Secret(key[:8].hex(), key[8:])
