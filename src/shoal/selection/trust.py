"""Whom a node draws from less: those whose successes it would not have said itself.

The gate on likelihood (`external.gate`) leaves what is planted out of the loss, but its rollouts have had their
places in the update by then: whoever is gated always still starves the others. So the share of a node's successes that
came through the gate, as the learner measured it (`gated/from/NODE`), is the share of updates in which it comes before
others; in the rest it has the places that these leave. Nobody falls to nothing, so who was gated by chance, or is
understood later, comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

GATED = "gated/from/"
"""Of a metric: the share of a node's successes that the gate kept out of an update."""
PRIOR = 1.0
"""Successes that anybody is taken to have brought through: one that is gated halves the trust in a stranger."""
MEMORY = 16.0
"""Successes that count; older ones fade. With the prior, trust is never below 1 / 17."""
NAMES = 1024
"""Nodes that are remembered; those that went unnoticed for longest are forgotten first."""


class Trust:
    """The share of each node's successes that came through the gate of late; 1 of those that are not known."""

    def __init__(self) -> None:
        self._record: dict[str, tuple[float, float]] = {}
        """Of each name: its successes that came through, and all of them."""

    def heed(self, update: Mapping[str, float], successes: Mapping[str, int], names: Mapping[str, set[str]]) -> None:
        """Learns from an update's metrics. `successes`: how many each node had in it; `names`: what a node is
        remembered as, and several may share one."""
        for node, count in successes.items():
            gated = update.get(GATED + node)
            if gated is None:
                continue
            for name in sorted(names[node]):
                through, seen = self._record.pop(name, (0.0, 0.0))
                through, seen = through + (1 - gated) * count, seen + count
                fade = min(1.0, MEMORY / max(seen, 1.0))
                self._record[name] = through * fade, seen * fade
        while len(self._record) > NAMES:
            del self._record[next(iter(self._record))]

    def of(self, name: str) -> float:
        """The trust, in (0, 1], in the node remembered as `name`."""
        through, seen = self._record.get(name, (0.0, 0.0))
        return (PRIOR + through) / (PRIOR + seen)

    def state(self) -> list[tuple[str, float, float]]:
        return [(name, *record) for name, record in self._record.items()]

    def restore(self, state: Iterable[tuple[str, float, float]]) -> None:
        self._record = {name: (through, seen) for name, through, seen in state}
