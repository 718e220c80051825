"""Whom a node listens to: a few peers of a small region, so that a node costs the same in a swarm of any size.

    shoal/<swarm>/open/rollouts/<shard>/<id>    what a node publishes
    shoal/<swarm>/open/offers/<shard>/<id>      what it answers if asked what it has (`offers`)
    shoal/<swarm>/open/notices/<shard>/<id>     what it says of its rounds, to whoever watches (`notices`)

A private swarm has other words in these places, which tell nobody anything (`secret`).

A shard is three hex digits of a hash of the id. A node looks for peers in a **region** only: the shards that begin with
the same 3, 2, 1 or 0 digits, the smallest such region of a random branch that has enough peers. It asks who there has
something to give, and subscribes to the own keys of `wanted` of them. The branch is random and not the node's own, so
that the swarm does not fall apart into regions that know only themselves.

Who brings usable rollouts keeps its place, however many others offer theirs. Anybody can make up offers, so a new
neighbour is on trial: where something is lacking, it must bring something usable within seconds.

No class here knows of Zenoh: `network` asks and subscribes, and a simulation may have ten thousand of them.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from random import Random

from shoal.errors import UserError
from shoal.identity.secret import OPEN, Secret
from shoal.swarm.limits import Recent

DIGITS = 3
"""Hex digits of a shard: 4096 shards."""
START, LEAST, MOST = 8, 2, 32
"""Peers that a node listens to: at first, at least and at most."""
ENOUGH = 2
"""A region is large enough if it has this many times the peers that are looked for."""
CANDIDATES = 512
"""Peers that are kept of a search, at most."""
FOUND = 60.0
"""Seconds for which the peers of a search are good for."""
TRIAL = 20.0
"""Seconds in which a new neighbour has to bring something usable, where something is lacking."""
BARREN = 5
"""Rounds without anything usable after which a neighbour may be exchanged, where something is lacking."""
PLENTY = 4
"""A pool with more than this many times J live rollouts has more than it can use."""
CALM = 3
"""Rounds of plenty after which a neighbour is given up."""
MIXING = 20
"""Rounds after which somebody else is tried, and takes the place of another one if it brings something. A swarm that
was cut in two finds together again so, and who is heard by nobody is heard some time."""
SILENT = 5
"""Questions without an answer after which a neighbour counts as gone."""
REMEMBERED = 4096
"""Peers that are remembered: those given up, and those that brought something once."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_name(name: str, what: str = "swarm") -> str:
    """`name`, if it may stand in a key. Raises `UserError`."""
    if not _NAME.fullmatch(name):
        raise UserError(f"the {what} '{name}' must have 1 to 64 letters, digits, '-', '_' or '.'")
    return name


def shard_of(address: str) -> str:
    return hashlib.blake2b(address.encode(), digest_size=8).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Keys:
    """The key expressions of a swarm. Those of another swarm or another secret never meet them."""

    swarm: str
    secret: Secret = OPEN

    def __post_init__(self) -> None:
        check_name(self.swarm)

    def rollouts(self, id: str) -> str:
        return self._of("rollouts", id)

    def offers(self, id: str) -> str:
        return self._of("offers", id)

    def notices(self, id: str) -> str:
        return self._of("notices", id)

    @property
    def all_notices(self) -> str:
        """Matches the notices of all nodes."""
        return f"{self.secret.prefix(self.swarm)}/notices/**"

    def region(self, prefix: str) -> str:
        """Matches the offers of all peers of a region."""
        shards = prefix if len(prefix) == DIGITS else f"{prefix}$*" if prefix else "*"
        return f"{self.secret.prefix(self.swarm)}/offers/{shards}/*"

    def _of(self, what: str, id: str) -> str:
        address = self.secret.address(id)
        return f"{self.secret.prefix(self.swarm)}/{what}/{shard_of(address)}/{address}"


def random_branch(random: Random) -> str:
    return f"{random.randrange(16**DIGITS):0{DIGITS}x}"


def find_region(ask: Callable[[str], Collection[str]], branch: str, enough: int) -> str:
    """The smallest region of `branch` with at least `enough` peers; the one of all peers if there is none.

    `ask` tells the peers of the region with a given prefix. It is asked from the smallest upwards: each answer is then
    about 16 times the one before, which was too small, so that none is large however large the swarm is.
    """
    for digits in range(DIGITS, -1, -1):
        prefix = branch[:digits]
        if len(ask(prefix)) >= enough:
            break
    return prefix


@dataclass
class Place:
    """A neighbour."""

    since: float
    rounds: int = 0
    """Since it brought something usable."""
    brought: int = 0
    answered: bool = False
    """Whether it has ever said what it has."""
    unanswered: int = 0
    """Questions since its last answer."""

    @property
    def there(self) -> bool:
        return self.answered and self.unanswered < SILENT

    @property
    def gone(self) -> bool:
        """Others may answer in its name and so drown its answer: who brings something is not gone."""
        return self.unanswered >= SILENT and (not self.brought or self.rounds > BARREN)


class Neighbours:
    """Whom a node listens to. Deterministic, given `random`; not thread-safe. Times are seconds, by any clock."""

    def __init__(self, own: str, random: Random, start: int = START, least: int = LEAST, most: int = MOST) -> None:
        if not 1 <= least <= start <= most:
            raise ValueError(f"not in order: least {least}, start {start}, most {most}")
        self.own = own
        self.wanted = start
        self.least = least
        self.most = most
        self.prefix = ""
        """The region of the last search."""
        self.chosen: dict[str, Place] = {}
        self.lacking = True
        """Whether the pool has too little."""
        self._random = random
        self._candidates: list[str] = []
        """Of the last search: those with something to give first, otherwise in random order."""
        self._found = -FOUND
        self._tried: Recent[str, None] = Recent(REMEMBERED, lambda: None)
        self._good: dict[str, None] = {}
        """Those given up that had brought something."""
        self._mixing = False
        self._guest: str | None = None
        """Who is on trial for the place of another one."""
        self._calm = 0
        self._rounds = 0
        self._exhausted = False

    @property
    def known(self) -> set[str]:
        """Those who are there, as far as this node knows: neighbours that answer, and those of the last search."""
        return {id for id, place in self.chosen.items() if place.there} | set(self._candidates)

    @property
    def missing(self) -> int:
        """Peers to be looked for: places that nobody of the last search can take."""
        free = self.wanted + self._mixing - len(self.chosen)
        if self._exhausted:
            return self.wanted
        return max(0, free)

    def found(self, prefix: str, giving: Iterable[str], others: Iterable[str], now: float) -> None:
        """What a search brought: the region, who there has something to give, and who has nothing yet."""
        self.prefix, self._found, self._exhausted = prefix, now, False
        self._candidates = []
        for ids in (giving, others):
            each = sorted(set(ids) - self.chosen.keys() - {self.own} - set(self._candidates))
            self._candidates += self._random.sample(each, len(each))
        del self._candidates[CANDIDATES:]
        if all(id in self._tried for id in self._candidates):
            self._tried = Recent(REMEMBERED, lambda: None)  # there is nobody else: once more from the beginning
        if not self._candidates:
            self._mixing = self._guest is not None

    def answered(self, id: str) -> None:
        """Neighbour `id` said what it has."""
        if id in self.chosen:
            self.chosen[id].answered, self.chosen[id].unanswered = True, 0

    def asked(self, id: str) -> None:
        """Neighbour `id` has been asked what it has, and has not answered yet."""
        if id in self.chosen:
            self.chosen[id].unanswered += 1

    def credit(self, id: str, usable: int = 1) -> None:
        """Neighbour `id` brought something usable."""
        if id in self.chosen and usable:
            self.chosen[id].rounds = 0
            self.chosen[id].brought += usable

    def need(self, live: int, wanted: int) -> None:
        """After a round: the pool has `live` rollouts with a gradient, and each update can use `wanted` (J) of them.

        Too few: more neighbours, and others in place of those that bring nothing. Plenty, for a while: fewer. Now and
        then: a trial of another one.
        """
        for place in self.chosen.values():
            place.rounds += 1
        self._rounds += 1
        if self._rounds % MIXING == 0 and self.chosen:
            self._mixing = True
        self.lacking = live < wanted
        if self.lacking:
            self._calm = 0
            self.wanted = min(self.most, self.wanted + 2)
        elif live > PLENTY * wanted:
            self._calm += 1
            if self._calm >= CALM:
                self._calm = 0
                self.wanted = max(self.least, self.wanted - 1)
        else:
            self._calm = 0

    def choose(self, now: float) -> set[str]:
        """Whom to listen to from `now` on.

        A neighbour that is gone keeps its place until somebody else can take it: if a relay dies all are gone, and all
        are there again when it is back, without a gap.
        """
        if now - self._found >= FOUND:
            self._candidates = []
        self._end_trial(now)
        while len(self.chosen) > self.wanted + (self._guest is not None):
            self._drop(min(self.chosen.keys() - {self._guest}, key=self._worth))
        self._exchange(now)
        for _ in range(self.wanted - len(self.chosen)):
            self._take(self._next(), now)
        if self._mixing and self._guest is None and len(self.chosen) == self.wanted:
            self._guest = next((id for id in self._candidates if id not in self._tried), None)
            self._take(self._guest, now)
        return set(self.chosen)

    def _end_trial(self, now: float) -> None:
        """Somebody else's place goes to the guest if it brought something."""
        guest = self._guest
        if guest is None or guest not in self.chosen:
            self._guest = None
            return
        place = self.chosen[guest]
        if place.brought and len(self.chosen) > self.wanted:
            self._drop(self._random.choice(sorted(self.chosen.keys() - {guest})))
        elif not place.brought and now - place.since < TRIAL:
            return
        elif not place.brought:
            self._drop(guest)
        self._guest, self._mixing = None, False

    def _exchange(self, now: float) -> None:
        """Gives places to peers that have not been tried, as far as there are such: those of peers that are gone, and,
        where something is lacking, those of peers that bring nothing."""
        places = {id: place for id, place in self.chosen.items() if id != self._guest}
        useless = [id for id, place in places.items() if place.gone]
        if self.lacking:
            useless += [
                id
                for id, place in places.items()
                if not place.gone and not place.brought and now - place.since >= TRIAL
            ]
            barren = [id for id, place in places.items() if not place.gone and place.brought and place.rounds > BARREN]
            useless += self._random.sample(barren, len(barren))[: max(1, len(self.chosen) // 2)]
        fresh = sum(id not in self._tried for id in self._candidates)
        free = max(0, self.wanted - len(self.chosen))
        for id in useless[: max(0, fresh - free)]:
            self._drop(id)
        self._exhausted = bool(useless) and not fresh

    def _next(self) -> str | None:
        """Who takes a free place: by turns one that brought something before, and any other. Those that were given up
        come last."""
        again = self.lacking and self._random.random() < 0.5
        good = [id for id in self._good if id not in self.chosen] if again else []
        fresh = [id for id in self._candidates if id not in self._tried]
        return next(iter(good or fresh or self._candidates), None)

    def _take(self, id: str | None, now: float) -> None:
        if id is None:
            return
        self.chosen[id] = Place(now)
        if id in self._candidates:
            self._candidates.remove(id)

    def _worth(self, id: str) -> tuple[bool, int, str]:
        return self.chosen[id].unanswered < SILENT, self.chosen[id].brought, id

    def _drop(self, id: str) -> None:
        place = self.chosen.pop(id)
        self._tried[id]
        if place.brought and place.rounds <= BARREN:
            self._good[id] = None
            if len(self._good) > REMEMBERED:
                del self._good[next(iter(self._good))]
