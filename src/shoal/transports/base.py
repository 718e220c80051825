"""A transport: how bytes travel between the nodes of a swarm.

    class MyTransport(Transport):
        def __init__(self, network: NetworkConfig, context: TransportContext) -> None: ...
        def publish(self, channel: Channel, data: bytes) -> None: ...      # to all other nodes of the swarm
        def presence(self) -> Presence: ...                                # who is there
        def close(self) -> None: ...

It gives what comes to `context.deliver(channel, address, data)`. Signatures, encryption, admission and queues stand
above it (`shoal.membership`): a transport harms nobody but by silence. docs/extend/transport.md has an example.
"""

import hashlib
import logging
import re
import sys
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from shoal.admission.clocks import Clocks
from shoal.config.sections import NetworkConfig
from shoal.errors import UserError, in_brief
from shoal.identity.keys import Identity
from shoal.identity.secret import OPEN, Secret

logger = logging.getLogger(__name__)

Channel = Literal["rollouts", "notices"]
"""`rollouts` are for nodes; `notices`, of how rounds went, for people who watch."""
Deliver = Callable[[Channel, str, bytes], None]
"""Takes a message: its channel, the address under which it came, and its bytes. It never waits; any thread may call."""
DIGITS = 3  # hex digits of a shard: 4096 shards


class Unreachable(Exception):  # noqa: N818 (it is a state of the network, not a fault)
    """Nobody answers there. Try again later."""


@dataclass(frozen=True)
class TransportContext:
    """What a transport is told of its node."""

    swarm: str
    """The swarm's name."""
    identity: Identity
    deliver: Deliver
    secret: Secret = OPEN
    max_bytes: int = 1 << 20
    """Longer messages are dropped when they are delivered, so a transport need not read them."""
    hears_notices: bool = False
    """Whether this node wants all notices, also in a large swarm."""
    neighbours: int | None = None
    """How many peers to listen to at the start, for a transport that can choose."""
    clocks: Clocks = field(default_factory=Clocks)
    """Hears of the times in what peers sign, from a transport that reads it."""

    @property
    def prefix(self) -> str:
        """The name of the swarm where messages travel, as `shoal/lagoon/open`. That of a private swarm reveals
        nothing."""
        return self.secret.prefix(self.swarm)

    @property
    def address(self) -> str:
        """What this node is called where messages travel: 64 hex digits, its id or, in a private swarm, a hash."""
        return self.secret.address(self.identity.id)


@dataclass(frozen=True)
class Presence:
    """Who is there, as far as a transport knows."""

    peers: int = 0
    """Nodes that are known to be there."""
    neighbours: tuple[str, ...] = ()
    """Addresses of the nodes that it listens to."""
    links: int = 1
    """Open connections; 0: this node is cut off."""
    trouble: str = ""
    """Why nobody is there."""
    warning: str = ""
    """What the user should mend."""
    wanted: int = 0
    """How many nodes it would listen to."""


class Transport(ABC):
    """One node's end of a swarm's transport. The methods may be called on any thread."""

    dropped: Counter[str]
    """Messages that came and were not delivered, by reason."""
    faults: int
    """Errors of this program itself."""
    first_fault: str
    """What the first of them was; empty if there was none."""

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        """`network`: where others are. It opens at once, or on a thread of its own. Raises `UserError`."""
        self.context = context
        self.dropped = Counter()
        self.faults = 0
        self.first_fault = ""

    @classmethod  # noqa: B027 (most have nothing to check)
    def check(cls, network: NetworkConfig) -> None:
        """Raises `UserError` for settings that cannot be used, before anything is loaded or opened."""

    def wait_open(self, timeout: float) -> bool:
        """Whether something can be published now. Waits up to `timeout` seconds for that."""
        return True

    @abstractmethod
    def publish(self, channel: Channel, data: bytes) -> None:
        """Sends `data` to whoever listens, and keeps it for a while for those who come late, if it can. It is called on
        a thread of its own, once the transport is open."""

    @abstractmethod
    def presence(self) -> Presence:
        """Who is there. It is quick."""

    def fault(self, doing: str) -> None:
        """In an `except` clause: an error of this program must not stop the training. The first one is logged, and all
        are counted."""
        self.faults += 1
        if self.faults == 1:
            error = sys.exc_info()[1]
            self.first_fault = f"{doing}: {in_brief(error)}" if error else doing
            logger.exception("%s failed; further such errors are counted only", doing)

    def need(self, live: int, wanted: int) -> None:  # noqa: B027 (for those that choose whom to listen to)
        """After each round: the pool has `live` rollouts with a gradient, and an update can use `wanted` (J)."""

    def credit(self, id: str) -> None:  # noqa: B027
        """The node with this id brought a rollout that one can learn from."""

    @abstractmethod
    def close(self) -> None:
        """Leaves the swarm."""


def check_name(name: str, what: str = "swarm") -> str:
    """`name`, if it may stand in the names of channels. Raises `UserError`."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,64}", name):
        raise UserError(f"the {what} '{name}' must have 1 to 64 letters, digits, '-', '_' or '.'")
    return name


def shard_of(address: str) -> str:
    return hashlib.blake2b(address.encode(), digest_size=8).hexdigest()[:DIGITS]


def key_of(prefix: str, kind: str, address: str) -> str:
    """The name under which a node publishes messages of a kind; a private swarm encrypts them for this name."""
    return f"{prefix}/{kind}/{shard_of(address)}/{address}"
