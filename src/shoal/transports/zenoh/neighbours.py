"""Which peers a node listens to: its neighbours. They are few, so that a node costs the same in a swarm of any size.

A node looks for peers in one region only (`key_expressions`): the smallest region of a random branch that has enough
peers. It asks who there has something to give, and subscribes to `wanted` of them. The branch is random and not the
node's own, so that the swarm does not fall apart into regions that know only themselves.

A neighbour that brings usable rollouts keeps its place, however many others offer theirs. Anybody can make up offers,
so a new neighbour is on trial: if this node lacks rollouts, the new one must bring something usable within seconds.
"""

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from random import Random

from shoal.admission.bounded import RecentKeys
from shoal.transports.base import DIGITS

START, LEAST, MOST = 8, 2, 32  # neighbours at the start, at least and at most
ENOUGH = 2  # a region is large enough if it has this many times the peers that are missing
CANDIDATES = 512  # peers of a search that are kept
FOUND = 60.0  # seconds for which the result of a search is used
TRIAL = 20.0  # seconds in which a new neighbour has to bring something usable, if this node lacks rollouts
BARREN = 5  # rounds without anything usable after which a neighbour may be replaced, if this node lacks rollouts
PLENTY = 4  # a pool with more than this many times J live rollouts has more than it can use
MIXING = 20
"""Rounds after which another peer is tried; it replaces a neighbour if it brings something. So the halves of a swarm
that was cut in two find each other again, and somebody hears a node that nobody heard."""
SILENT = 5  # questions without an answer after which a neighbour counts as gone
REMEMBERED = 4096  # peers given up that are remembered


def random_branch(random: Random) -> str:
    return f"{random.randrange(16**DIGITS):0{DIGITS}x}"


def find_region(ask: Callable[[str], Collection[str]], branch: str, enough: int) -> str:
    """The prefix of the smallest region of `branch` with at least `enough` peers; "" (all peers) if there is none.

    `ask` returns the peers of the region with a given prefix. The smallest region comes first. Each next one is about
    16 times as large as one that was too small, so no answer is large, however large the swarm is."""
    for digits in range(DIGITS, -1, -1):
        prefix = branch[:digits]
        if len(ask(prefix)) >= enough:
            break
    return prefix


@dataclass
class Neighbour:
    """What is known of a neighbour."""

    since: float
    rounds: int = 0
    """Rounds since it brought something usable."""
    brought: int = 0
    """Usable rollouts that it has brought."""
    answered: bool = False
    """Whether it has ever answered."""
    unanswered: int = 0
    """Questions since its last answer."""

    @property
    def there(self) -> bool:
        return self.answered and self.unanswered < SILENT

    @property
    def gone(self) -> bool:
        """Whether it has left. Others may answer in its name and drown its answer: one that brings something is
        there."""
        return self.unanswered >= SILENT and (not self.brought or self.rounds > BARREN)


class Neighbours:
    """The neighbours of the node `own`. Deterministic, given `random`; not thread-safe. Times are seconds of any
    clock."""

    def __init__(self, own: str, random: Random, start: int = START, least: int = LEAST, most: int = MOST) -> None:
        if not 1 <= least <= start <= most:
            raise ValueError(f"not in order: least {least}, start {start}, most {most}")
        self.own = own
        self.wanted = start
        self.least = least
        self.most = most
        self.chosen: dict[str, Neighbour] = {}
        self.lacking = True
        """Whether the pool has too few rollouts."""
        self._random = random
        self._candidates: list[str] = []
        """Peers of the last search: those with something to give first, otherwise in random order."""
        self._found = -FOUND
        self._tried = RecentKeys[str](REMEMBERED)
        self._mixing = False
        self._guest: str | None = None
        """The peer that is on trial for the place of a neighbour."""
        self._rounds = 0
        self._exhausted = False

    @property
    def known(self) -> set[str]:
        """Peers that are there, as far as this node knows: neighbours that answer, and peers of the last search."""
        return {id for id, neighbour in self.chosen.items() if neighbour.there} | set(self._candidates)

    @property
    def missing(self) -> int:
        """How many peers to search for: places that nobody of the last search can take."""
        return self.wanted if self._exhausted else max(0, self.wanted + self._mixing - len(self.chosen))

    def found(self, giving: Iterable[str], others: Iterable[str], now: float) -> None:
        """The result of a search: the peers of a region with something to give, and those without."""
        self._found, self._exhausted = now, False
        self._candidates = []
        for ids in (giving, others):
            each = sorted(set(ids) - self.chosen.keys() - {self.own} - set(self._candidates))
            self._candidates += self._random.sample(each, len(each))
        del self._candidates[CANDIDATES:]
        if all(id in self._tried for id in self._candidates):
            self._tried = RecentKeys(REMEMBERED)  # there is nobody else: start again
        if not self._candidates:
            self._mixing = self._guest is not None

    def answered(self, id: str) -> None:
        """Neighbour `id` answered."""
        if id in self.chosen:
            self.chosen[id].answered, self.chosen[id].unanswered = True, 0

    def asked(self, id: str) -> None:
        """Neighbour `id` was asked."""
        if id in self.chosen:
            self.chosen[id].unanswered += 1

    def credit(self, id: str, usable: int = 1) -> None:
        """Neighbour `id` brought something usable, so it is there."""
        if id in self.chosen and usable:
            self.answered(id)
            self.chosen[id].rounds = 0
            self.chosen[id].brought += usable

    def need(self, live: int, wanted: int) -> None:
        """Call this after a round: the pool has `live` rollouts with a gradient, and an update can use `wanted` (J).

        With too few, this node takes more neighbours and replaces those that bring nothing. With plenty, it takes
        fewer. Now and then it tries another peer.
        """
        for neighbour in self.chosen.values():
            neighbour.rounds += 1
        self._rounds += 1
        if self._rounds % MIXING == 0 and self.chosen:
            self._mixing = True
        self.lacking = live < wanted
        if self.lacking:
            self.wanted = min(self.most, self.wanted + 2)
        elif live > PLENTY * wanted:
            self.wanted = max(self.least, self.wanted - 1)

    def choose(self, now: float) -> set[str]:
        """The ids of the neighbours to listen to from `now` on.

        A neighbour that is gone keeps its place until another peer can take it: if a relay dies, all neighbours are
        gone, and when it is back all are there again, without a gap."""
        if now - self._found >= FOUND:
            self._candidates = []
        self._end_trial(now)
        while len(self.chosen) > self.wanted + (self._guest is not None):
            worth = {id: (n.unanswered < SILENT, n.brought, id) for id, n in self.chosen.items() if id != self._guest}
            self._drop(min(worth, key=worth.__getitem__))
        self._exchange(now)
        for _ in range(self.wanted - len(self.chosen)):
            self._take(self._next(), now)
        if self._mixing and self._guest is None and len(self.chosen) == self.wanted:
            self._guest = next((id for id in self._candidates if id not in self._tried), None)
            self._take(self._guest, now)
        return set(self.chosen)

    def _end_trial(self, now: float) -> None:
        """The guest takes the place of a neighbour if it brought something."""
        guest = self._guest
        if guest is None or guest not in self.chosen:
            self._guest = None
            return
        neighbour = self.chosen[guest]
        if neighbour.brought:
            if len(self.chosen) > self.wanted:
                self._drop(self._random.choice(sorted(self.chosen.keys() - {guest})))
        elif now - neighbour.since < TRIAL:
            return
        else:
            self._drop(guest)
        self._guest, self._mixing = None, False

    def _exchange(self, now: float) -> None:
        """Gives places to peers that were not tried yet, if there are any: the places of neighbours that are gone, and,
        if this node lacks rollouts, of neighbours that bring nothing."""
        others = {id: neighbour for id, neighbour in self.chosen.items() if id != self._guest}
        useless = [id for id, neighbour in others.items() if neighbour.gone]
        if self.lacking:
            present = {id: neighbour for id, neighbour in others.items() if not neighbour.gone}
            useless += [id for id, each in present.items() if not each.brought and now - each.since >= TRIAL]
            barren = [id for id, each in present.items() if each.brought and each.rounds > BARREN]
            useless += self._random.sample(barren, len(barren))[: max(1, len(self.chosen) // 2)]
        fresh = sum(id not in self._tried for id in self._candidates)
        free = max(0, self.wanted - len(self.chosen))
        for id in useless[: max(0, fresh - free)]:
            self._drop(id)
        self._exhausted = bool(useless) and not fresh

    def _next(self) -> str | None:
        """The peer that takes a free place. Peers that were given up come last."""
        fresh = [id for id in self._candidates if id not in self._tried]
        return next(iter(fresh or self._candidates), None)

    def _take(self, id: str | None, now: float) -> None:
        if id is None:
            return
        self.chosen[id] = Neighbour(now)
        if id in self._candidates:
            self._candidates.remove(id)

    def _drop(self, id: str) -> None:
        del self.chosen[id]
        self._tried.add(id)
