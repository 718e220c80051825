"""What a node remembers of makers: which are new to it, and whose successes its policy finds likely.

New names cost nothing, so newcomers share one quota of an update (`selection.newcomer_share`): makers with fewer than
16 rollouts so far, and those that admission does not know.
"""

import hashlib
from collections.abc import Mapping, Sequence

import msgspec

from shoal.rollout import Scored

ENOUGH = 16  # rollouts after which a maker is no newcomer, if it is none to admission (`Scored.newcomer`)
NAMES = 1024
"""Newcomers that are remembered, and as many known makers, and records of trust: invented names cannot fill the memory.
"""
PRIOR = 1.0  # successes that every maker is credited with; the first gated success halves the trust in a stranger
MEMORY = 16.0  # successes that count; older ones fade. With the prior, trust is never below 1 / 17.


class Newcomers(msgspec.Struct):
    """Counts the rollouts of each maker."""

    counts: dict[str, int] = {}
    """Rollouts of each newcomer. The maker that was seen longest ago is forgotten first."""
    known: dict[str, None] = {}
    present: list[str] = []
    """The rollouts in the pool last time, so that each counts once."""

    def observe(self, candidates: Sequence[Scored]) -> None:
        """Counts the rollouts of the pool that were not there last time."""
        before = set(self.present)
        present = {digest(s.rollout.node, s.rollout.round, s.rollout.slot, s.question.id): s for s in candidates}
        for key, scored in present.items():
            if key in before:
                continue
            name = digest(scored.rollout.node)
            count = self.counts.pop(name, 0) + 1
            if name in self.known or (count >= ENOUGH and not scored.newcomer):
                self.known.pop(name, None)
                self.known[name] = None
            else:
                self.counts[name] = count
        self.present = list(present)
        for names in (self.counts, self.known):
            while len(names) > NAMES:
                del names[next(iter(names))]

    def __contains__(self, maker: str) -> bool:
        return digest(maker) not in self.known


def digest(*parts: object) -> str:
    """A short hash of anything, also of text that cannot be encoded. A maker's name may be long."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()


class Trust(msgspec.Struct):
    """The share of each maker's recent successes that came through the gate; 1 for unknown makers.

    The gate on likelihood (`peers.gate`) leaves planted text out of the loss, but by then its rollouts have taken
    places in the update, so a maker that is always gated would starve the others. This share is therefore the share of
    updates in which a maker comes before others. In the rest of them it gets the places that are left. No trust falls
    to 0, so a maker that was gated by chance comes back.
    """

    record: dict[str, tuple[float, float]] = {}
    """For each name: successes that came through, and all successes."""

    def observe(self, gated: Mapping[str, float], successes: Mapping[str, int], names: Mapping[str, set[str]]) -> None:
        """Learns from an update. `gated`: the share of each maker's successes that the gate left out; `successes`:
        their number; `names`: under what a maker is remembered. Several makers may share a name."""
        for maker, count in successes.items():
            if maker not in gated:
                continue
            for name in sorted(names[maker]):
                through, seen = self.record.pop(name, (0.0, 0.0))
                through, seen = through + (1 - gated[maker]) * count, seen + count
                fade = min(1.0, MEMORY / max(seen, 1.0))
                self.record[name] = through * fade, seen * fade
        while len(self.record) > NAMES:
            del self.record[next(iter(self.record))]

    def of(self, name: str) -> float:
        """The trust, in (0, 1], in the maker that is remembered as `name`."""
        through, seen = self.record.get(name, (0.0, 0.0))
        return (PRIOR + through) / (PRIOR + seen)
