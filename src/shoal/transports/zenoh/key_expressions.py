"""The Zenoh key expressions of a swarm: under which names its nodes publish and answer.

    shoal/<swarm>/open/rollouts/<shard>/<id>    the rollouts that a node publishes
    shoal/<swarm>/open/offers/<shard>/<id>      what it has, for peers who ask (`offers`)
    shoal/<swarm>/open/notices/<shard>/<id>     how its rounds went, for people who watch (`notices`)

A private swarm has other words in these places, which reveal nothing (`secret`). A shard is three hex digits of a hash
of the id. A region is all shards that begin with the same 3, 2, 1 or 0 digits.
"""

from dataclasses import dataclass

from shoal.identity.secret import OPEN, Secret
from shoal.transports.base import DIGITS, check_name, key_of


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
        return key_of(self.secret.prefix(self.swarm), kind, self.secret.address(id))
