"""Swarms within one process: `MemorySwarm` for nodes that trust each other, and the transport `memory` for those that
sign and check as if they were strangers."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from shoal.config.sections import NetworkConfig
from shoal.rollout import Rollout
from shoal.transports.base import Channel, Presence, Transport, TransportContext

_lock = threading.Lock()
_swarms: defaultdict[str, dict[str, TransportContext]] = defaultdict(dict)
"""The nodes of this process: by the name of their swarm, and by their address."""


class MemoryTransport(Transport):
    """Nodes of one process that find each other by the swarm's name. Who comes late misses what was sent before."""

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        super().__init__(network, context)
        with _lock:
            _swarms[context.prefix][context.address] = context

    def publish(self, channel: Channel, data: bytes) -> None:
        for other in self._others():
            if channel == "rollouts" or other.hears_notices:
                other.deliver(channel, self.context.address, data)

    def presence(self) -> Presence:
        others = self._others()
        return Presence(len(others), tuple(sorted(other.address for other in others)))

    def close(self) -> None:
        with _lock:
            _swarms[self.context.prefix].pop(self.context.address, None)

    def _others(self) -> list[TransportContext]:
        with _lock:
            return [one for one in _swarms[self.context.prefix].values() if one.address != self.context.address]


class MemorySwarm:
    """Carries rollouts between the nodes of one process, as the same bytes that would cross a network.

        swarm = MemorySwarm(seed=0)
        ada, bob = swarm.join("ada"), swarm.join("bob")
        ada.share([rollout])
        [received] = bob.receive()

    `seed` is that of the nodes' draws.
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = seed
        self._inboxes: dict[str, list[bytes]] = {}

    def join(self, node: str, num_generations: int | None = None) -> MemoryLink:
        """A place in the swarm for `node`, which takes of each rollout the first `num_generations` completions, or
        all."""
        self._inboxes[node] = []
        return MemoryLink(node, self.seed, self._inboxes, num_generations)


class MemoryLink:
    """One node's end of a `MemorySwarm`. It has no state that outlives a round."""

    refused = 0
    """Nothing: the node's scorer refuses what is not valid."""

    def __init__(self, node: str, seed: int, inboxes: dict[str, list[bytes]], num_generations: int | None) -> None:
        self._node = node
        self._inboxes = inboxes
        self._num_generations = num_generations
        self.seed_key = (seed, node)

    def share(self, rollouts: Sequence[Rollout]) -> None:
        messages = [rollout.encode() for rollout in rollouts]
        for node, inbox in self._inboxes.items():
            if node != self._node:
                inbox += messages

    def receive(self) -> list[Rollout]:
        inbox = self._inboxes[self._node]
        rollouts = [Rollout.decode(message) for message in inbox]
        inbox.clear()
        return [r if self._num_generations is None else r.first(self._num_generations) for r in rollouts]

    def save(self, folder: Path) -> None: ...

    def load(self, folder: Path) -> None: ...
