"""Which makers are new to this node: those with fewer than 16 rollouts so far, and those that admission does not know.

New names cost nothing, so newcomers share one quota of an update (`selection.newcomer_share`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from shoal.rollout import Scored

ENOUGH = 16
"""Rollouts after which a maker is no newcomer, if it is none to admission (`Scored.newcomer`)."""
NAMES = 1024
"""Newcomers that are remembered, and as many known makers: invented names cannot fill the memory."""


class Newcomers:
    """Counts the rollouts of each maker."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        """Rollouts of each newcomer. The maker that was seen longest ago is forgotten first."""
        self._known: dict[str, None] = {}
        self._present: set[str] = set()
        """The rollouts in the pool last time, so that each counts once."""

    def observe(self, candidates: Sequence[Scored]) -> None:
        """Counts the rollouts of the pool that were not there last time."""
        present = {digest(s.rollout.node, s.rollout.round, s.rollout.slot, s.question.id): s for s in candidates}
        for key, scored in present.items():
            if key in self._present:
                continue
            name = digest(scored.rollout.node)
            count = self._counts.pop(name, 0) + 1
            if name in self._known or (count >= ENOUGH and not scored.newcomer):
                self._known.pop(name, None)
                self._known[name] = None
            else:
                self._counts[name] = count
        self._present = set(present)
        for names in (self._counts, self._known):
            while len(names) > NAMES:
                del names[next(iter(names))]

    def __contains__(self, maker: str) -> bool:
        return digest(maker) not in self._known

    def state(self) -> list[Any]:
        return [list(self._counts.items()), list(self._known), sorted(self._present)]

    def restore(self, state: Sequence[Any]) -> None:
        counts, known, present = state
        self._counts, self._known, self._present = dict(counts), dict.fromkeys(known), set(present)


def digest(*parts: object) -> str:
    """A short hash of anything, also of text that cannot be encoded. A maker's name may be long."""
    return hashlib.blake2b(repr(parts).encode("utf-8", "backslashreplace"), digest_size=12).hexdigest()
