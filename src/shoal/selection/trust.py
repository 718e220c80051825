"""Which makers come first: those whose successes this node's policy finds likely.

The gate on likelihood (`peers.gate`) leaves planted text out of the loss, but by then its rollouts have taken places
in the update, so a maker that is always gated would starve the others. The share of a maker's successes that came
through the gate is therefore the share of updates in which it comes before others. In the rest of them it gets the
places that are left. No trust falls to 0, so a maker that was gated by chance comes back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

PRIOR = 1.0
"""Successes that every maker is credited with; the first gated success halves the trust in a stranger."""
MEMORY = 16.0
"""Successes that count; older ones fade. With the prior, trust is never below 1 / 17."""
NAMES = 1024
"""Makers that are remembered; the one that was seen longest ago is forgotten first."""


class Trust:
    """The share of each maker's recent successes that came through the gate; 1 for unknown makers."""

    def __init__(self) -> None:
        self._record: dict[str, tuple[float, float]] = {}
        """For each name: successes that came through, and all successes."""

    def observe(self, gated: Mapping[str, float], successes: Mapping[str, int], names: Mapping[str, set[str]]) -> None:
        """Learns from an update. `gated`: the share of each maker's successes that the gate left out; `successes`:
        their number; `names`: under what a maker is remembered. Several makers may share a name."""
        for maker, count in successes.items():
            if maker not in gated:
                continue
            for name in sorted(names[maker]):
                through, seen = self._record.pop(name, (0.0, 0.0))
                through, seen = through + (1 - gated[maker]) * count, seen + count
                fade = min(1.0, MEMORY / max(seen, 1.0))
                self._record[name] = through * fade, seen * fade
        while len(self._record) > NAMES:
            del self._record[next(iter(self._record))]

    def of(self, name: str) -> float:
        """The trust, in (0, 1], in the maker that is remembered as `name`."""
        through, seen = self._record.get(name, (0.0, 0.0))
        return (PRIOR + through) / (PRIOR + seen)

    def state(self) -> list[tuple[str, float, float]]:
        return [(name, *record) for name, record in self._record.items()]

    def restore(self, state: Iterable[tuple[str, float, float]]) -> None:
        self._record = {name: (through, seen) for name, through, seen in state}
