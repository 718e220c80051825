"""What a node has received from the swarm and has not used yet."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from shoal.rollout import Scored

SIZE = 256  # rollouts that a pool holds
MAX_AGE = 4  # rounds after which an unused rollout is dropped


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
        self._entries: list[tuple[int, Scored]] = []
        """The round of arrival and the rollout, oldest first."""
        self._newcomers: set[str] = set()
        """The makers among them that are newcomers, by their last rollout."""

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, scored: Iterable[Scored], round: int) -> None:
        """Takes in what arrived in `round`, and drops what is too old by then or too much."""
        self._keep(lambda arrived, _: round - arrived <= self.max_age)
        for one in scored:
            self._entries.append((round, one))
            if one.newcomer:
                self._newcomers.add(one.rollout.node)
            else:
                self._newcomers.discard(one.rollout.node)
            if len(self._entries) > self.size:
                del self._entries[self._surplus()]

    def candidates(self) -> list[Scored]:
        """What can be chosen, oldest first."""
        return [scored for _, scored in self._entries]

    def remove(self, used: Iterable[Scored]) -> None:
        """Takes out what has been learned from, known by its rollout: nothing is learned twice."""
        gone = {id(scored.rollout) for scored in used}
        self._keep(lambda _, scored: id(scored.rollout) not in gone)

    def save(self, folder: Path) -> None:
        # A later rollout of a maker, used since, may have made it known: the entries do not say.
        state = self._entries, sorted(self._newcomers)
        (folder / "pool.msgpack").write_bytes(msgspec.msgpack.encode(state))

    def load(self, folder: Path) -> None:
        data = (folder / "pool.msgpack").read_bytes()
        self._entries, self._newcomers = msgspec.msgpack.decode(data, type=tuple[list[tuple[int, Scored]], set[str]])

    def _keep(self, wanted: Callable[[int, Scored], bool]) -> None:
        self._entries = [(arrived, scored) for arrived, scored in self._entries if wanted(arrived, scored)]
        self._newcomers &= {scored.rollout.node for _, scored in self._entries}

    def _surplus(self) -> int:
        """The place of the rollout that goes when there is one too many."""
        held: dict[str, list[int]] = defaultdict(list)
        for place, (_, scored) in enumerate(self._entries):
            held[scored.rollout.node].append(place)
        newcomers = [places for maker, places in held.items() if maker in self._newcomers]
        crowded = 2 * sum(map(len, newcomers)) > self.size
        most = max(newcomers if crowded else held.values(), key=len)  # of several the one with the oldest rollout
        return next((place for place in most if not self._entries[place][1].may_teach), most[0])
