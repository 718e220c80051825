"""The Zenoh key expressions of a swarm: under which names its nodes publish and answer.

    shoal/<swarm>/open/rollouts/<shard>/<id>    the rollouts that a node publishes
    shoal/<swarm>/open/offers/<shard>/<id>      what it has, for peers who ask (`offers`)
    shoal/<swarm>/open/notices/<shard>/<id>     how its rounds went, for people who watch (`notices`)

A private swarm has other words in these places, which reveal nothing (`secret`). A shard is three hex digits of a hash
of the id. A region is all shards that begin with the same 3, 2, 1 or 0 digits.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass

from shoal.errors import UserError
from shoal.identity.secret import OPEN, Secret

DIGITS = 3  # hex digits of a shard: 4096 shards

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(name: str, what: str = "swarm") -> str:
    """`name`, if it may stand in a key expression. Raises `UserError`."""
    if not _NAME.fullmatch(name):
        raise UserError(f"the {what} '{name}' must have 1 to 64 letters, digits, '-', '_' or '.'")
    return name


def shard_of(address: str) -> str:
    return hashlib.blake2b(address.encode(), digest_size=8).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Keys:
    """The key expressions of one swarm. Those of another swarm or another secret never match them."""

    swarm: str
    secret: Secret = OPEN

    def __post_init__(self) -> None:
        check_name(self.swarm)

    def rollouts(self, id: str) -> str:
        return self._of("rollouts", id)

    def offers(self, id: str) -> str:
        return self._of("offers", id)

    def notices(self, id: str) -> str:
        return self._of("notices", id)

    @property
    def all_notices(self) -> str:
        """Matches the notices of all nodes."""
        return f"{self.secret.prefix(self.swarm)}/notices/**"

    def region(self, prefix: str) -> str:
        """Matches the offers of all peers whose shard begins with `prefix`."""
        shards = prefix if len(prefix) == DIGITS else f"{prefix}$*" if prefix else "*"
        return f"{self.secret.prefix(self.swarm)}/offers/{shards}/*"

    def _of(self, kind: str, id: str) -> str:
        address = self.secret.address(id)
        return f"{self.secret.prefix(self.swarm)}/{kind}/{shard_of(address)}/{address}"
