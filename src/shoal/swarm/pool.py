"""What a node has from the swarm and has not yet used, dropped or outdated."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from shoal.rollout import Scored


class Pool:
    """Scored foreign rollouts, bounded in number (the oldest go first) and in age (in rounds of this node)."""

    def __init__(self, size: int, max_age: int) -> None:
        self.size = size
        self.max_age = max_age
        self._entries: list[tuple[int, Scored]] = []

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, scored: Iterable[Scored], round: int) -> None:
        """Takes in what arrived in `round`, and drops what is too old by then or too much."""
        self._entries += [(round, s) for s in scored]
        fresh = [(arrived, s) for arrived, s in self._entries if round - arrived <= self.max_age]
        self._entries = fresh[-self.size :]

    def candidates(self) -> list[Scored]:
        """What there is to sample from, oldest first."""
        return [scored for _, scored in self._entries]

    def remove(self, used: Iterable[Scored]) -> None:
        """Takes out what has been learned from, known by its rollout: nothing is learned twice."""
        gone = {id(scored.rollout) for scored in used}
        self._entries = [entry for entry in self._entries if id(entry[1].rollout) not in gone]

    def save(self, folder: Path) -> None:
        (folder / "pool.msgpack").write_bytes(msgspec.msgpack.encode(self._entries))

    def load(self, folder: Path) -> None:
        data = (folder / "pool.msgpack").read_bytes()
        self._entries = msgspec.msgpack.decode(data, type=list[tuple[int, Scored]])
