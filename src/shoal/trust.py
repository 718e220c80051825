"""Whom a node draws from less: those whose successes it would not have said itself.

The gate on likelihood (`learner.external_gate`) leaves what is planted out of the loss, but its rollouts have had their
places in the update by then: whoever is gated always still starves the others. So the share of each node's successes
that came through the gate, as the learner measured it (`gated/from/NODE`), is how often its next rollouts are
considered at all. Nobody falls to nothing, so who was gated by chance, or is understood later, comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

GATED = "gated/from/"
"""Of a metric: the share of a node's successes that the gate kept out of an update."""
DECAY = 0.3
"""What each update counts in a node's moving mean."""
LEAST = 0.01
"""How often those are considered of whom nothing ever came through."""
NAMES = 1024
"""Nodes that are remembered; those that went unnoticed for longest are forgotten first."""


class Trust:
    """The share of each node's successes that came through the gate of late; 1 of those that are not known."""

    def __init__(self) -> None:
        self._through: dict[str, float] = {}

    def heed(self, update: Mapping[str, float], names: Mapping[str, str]) -> None:
        """Learns from an update's metrics. `names`: what a node of that update is remembered as; several may be one."""
        for node, name in names.items():
            gated = update.get(GATED + node)
            if gated is not None:
                before = self._through.pop(name, 1.0)
                self._through[name] = before + DECAY * (1 - gated - before)
        while len(self._through) > NAMES:
            del self._through[next(iter(self._through))]

    def of(self, name: str) -> float:
        """How often, in [0.01, 1], a rollout of the node remembered as `name` is considered."""
        return max(LEAST, self._through.get(name, 1.0))

    def state(self) -> list[tuple[str, float]]:
        return list(self._through.items())

    def restore(self, state: Iterable[tuple[str, float]]) -> None:
        self._through = dict(state)
