"""What later questions may quote: the last rollouts that a node made or admitted, by their hashes.

archive = Archive()
archive.add(Quotable(rollout.hash, "ada", "", question, ("4", "5")))
archive.get(rollout.hash)          # None once newer ones have taken its place
"""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable
from typing import Final

import msgspec

from shoal.rollout import Question

SIZE: Final = 512
"""Rollouts that are kept."""


class Quotable(msgspec.Struct, frozen=True):
    """What a later question needs of a rollout."""

    hash: str
    node: str
    """Who made it."""
    stage: str
    """Empty for an answer to a question that quotes nothing."""
    question: Question
    """The one that the first answers were given to, whatever has been said of them since."""
    answers: tuple[str, ...]
    """The first answers: some that differ."""
    remarks: tuple[str, ...] = ()
    """What its maker says of these, in a later stage: some that differ."""
    live: bool = True
    """Whether the rewards of the rollout differ."""
    right: tuple[bool, ...] = ()
    """Of each of `answers`, whether it got full marks here."""


class Archive:
    """The last `size` rollouts. When it is full, the node with the most of them gives up its oldest, so that nobody
    who sends much takes the place of others. Threads may share it."""

    def __init__(self, size: int = SIZE) -> None:
        self.size = size
        self._kept: OrderedDict[str, Quotable] = OrderedDict()
        self._of: Counter[str] = Counter()
        self._lock = threading.Lock()

    def add(self, one: Quotable) -> None:
        with self._lock:
            self._add(one)

    def get(self, hash: str) -> Quotable | None:
        with self._lock:
            return self._kept.get(hash)

    def of(self, stage: str) -> list[Quotable]:
        """Those of a stage, oldest first."""
        with self._lock:
            return [one for one in self._kept.values() if one.stage == stage]

    @property
    def kept(self) -> list[Quotable]:
        """All, oldest first."""
        with self._lock:
            return list(self._kept.values())

    def restore(self, kept: Iterable[Quotable]) -> None:
        with self._lock:
            self._kept.clear()
            self._of.clear()
            for one in kept:
                self._add(one)

    def _add(self, one: Quotable) -> None:
        if one.hash in self._kept:
            return
        self._kept[one.hash] = one
        self._of[one.node] += 1
        if len(self._kept) > self.size:
            most = max(self._of.values())
            loud = {node for node, count in self._of.items() if count == most}
            oldest = next(hash for hash, kept in self._kept.items() if kept.node in loud)
            gone = self._kept.pop(oldest)
            self._of -= Counter([gone.node])  # and forgets a node that has none left
