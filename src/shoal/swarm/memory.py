"""A swarm within one process."""

from __future__ import annotations

from collections.abc import Sequence

from shoal.rollout import Rollout


class MemorySwarm:
    """Carries rollouts between the nodes of one process, as the same bytes that would cross a network."""

    def __init__(self) -> None:
        self._inboxes: dict[str, list[bytes]] = {}

    def join(self, node: str) -> MemoryLink:
        """A place in the swarm for `node`."""
        self._inboxes[node] = []
        return MemoryLink(node, self._inboxes)


class MemoryLink:
    """One node's end of a `MemorySwarm`."""

    def __init__(self, node: str, inboxes: dict[str, list[bytes]]) -> None:
        self._node = node
        self._inboxes = inboxes

    def share(self, rollouts: Sequence[Rollout]) -> None:
        messages = [rollout.encode() for rollout in rollouts]
        for node, inbox in self._inboxes.items():
            if node != self._node:
                inbox += messages

    def receive(self) -> list[Rollout]:
        inbox = self._inboxes[self._node]
        rollouts = [Rollout.decode(message) for message in inbox]
        inbox.clear()
        return rollouts
