"""What a node has received from the swarm and has not used yet."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from shoal.rollout import Scored

SIZE = 256
"""Rollouts that a pool holds."""
MAX_AGE = 4
"""Rounds after which an unused rollout is dropped."""


class Pool:
    """Scored rollouts of peers, bounded in age (in rounds of this node) and in number.

    When the pool is full, the maker who holds most places gives one up: first a rollout that nobody can learn from,
    then its oldest. So k makers that send more than enough hold `size / k` places each, and a flood by one maker takes
    no place of another that holds its share or less. Newcomers that hold more than half of the places together give up
    theirs first.
    """

    def __init__(self, size: int = SIZE, max_age: int = MAX_AGE) -> None:
        self.size = size
        self.max_age = max_age
        self._entries: dict[int, tuple[int, Scored]] = {}
        """The round of arrival and the rollout, by number of arrival, oldest first."""
        self._arrivals = 0
        self._held: dict[str, dict[int, bool]] = {}
        """For each maker the numbers of its rollouts, oldest first, and whether each is usable."""
        self._newcomers: dict[str, None] = {}
        """The makers among them that are newcomers, by their last rollout."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, scored: Iterable[Scored], round: int) -> None:
        """Takes in what arrived in `round`, and drops what is too old by then or too much."""
        for number in [n for n, (arrived, _) in self._entries.items() if round - arrived > self.max_age]:
            self._drop(number)
        for one in scored:
            self._put(one, round)
            if len(self._entries) > self.size:
                self._drop(self._surplus())

    def candidates(self) -> list[Scored]:
        """What can be chosen, oldest first."""
        return [scored for _, scored in self._entries.values()]

    def remove(self, used: Iterable[Scored]) -> None:
        """Takes out what has been learned from, known by its rollout: nothing is learned twice."""
        gone = {id(scored.rollout) for scored in used}
        for number in [n for n, (_, scored) in self._entries.items() if id(scored.rollout) in gone]:
            self._drop(number)

    def save(self, folder: Path) -> None:
        state = list(self._entries.values()), list(self._newcomers)
        (folder / "pool.msgpack").write_bytes(msgspec.msgpack.encode(state))

    def load(self, folder: Path) -> None:
        data = (folder / "pool.msgpack").read_bytes()
        self._entries, self._held, self._newcomers = {}, {}, {}
        entries, newcomers = msgspec.msgpack.decode(data, type=tuple[list[tuple[int, Scored]], list[str]])
        for arrived, scored in entries:
            self._put(scored, arrived)
        self._newcomers = dict.fromkeys(newcomers)  # a later rollout of a maker, used since, may have made it known

    def _put(self, scored: Scored, round: int) -> None:
        maker = scored.rollout.node
        self._arrivals += 1
        self._entries[self._arrivals] = round, scored
        self._held.setdefault(maker, {})[self._arrivals] = scored.may_teach
        if scored.newcomer:
            self._newcomers[maker] = None
        else:
            self._newcomers.pop(maker, None)

    def _surplus(self) -> int:
        """The number of the rollout that goes when there is one too many."""
        new = sum(len(self._held[maker]) for maker in self._newcomers)
        makers = self._newcomers if 2 * new > self.size else self._held
        most = max(makers, key=lambda maker: (len(self._held[maker]), -next(iter(self._held[maker]))))
        held = self._held[most]
        return next((number for number, usable in held.items() if not usable), next(iter(held)))

    def _drop(self, number: int) -> None:
        _, scored = self._entries.pop(number)
        maker = scored.rollout.node
        del self._held[maker][number]
        if not self._held[maker]:
            del self._held[maker]
            self._newcomers.pop(maker, None)
