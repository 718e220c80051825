"""Whom a node listens to: a few peers of a small region, so that a node costs the same in a swarm of any size.

    shoal/<swarm>/<tag>/rollouts/<shard>/<id>    what a node publishes
    shoal/<swarm>/<tag>/peers/<shard>/<id>       its presence (a liveliness token)
    shoal/<swarm>/<tag>/notices/<shard>/<id>     what it says of its rounds, to whoever watches (`notices`)

A shard is three hex digits of a hash of the id. A node looks for peers in a **region** only: the shards that begin with
the same 3, 2, 1 or 0 digits, the smallest such region of a random branch that has enough peers. There it subscribes to
the own keys of `wanted` of them. The branch is random and not the node's own, so that the swarm does not fall apart
into regions that know only themselves.

No class here knows of Zenoh: `network` asks and subscribes, and a simulation may have ten thousand of them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random

from shoal.errors import UserError

DIGITS = 3
"""Hex digits of a shard: 4096 shards."""
START, LEAST, MOST = 8, 2, 32
"""Peers that a node listens to: at first, at least and at most."""
ENOUGH = 2
"""A region is large enough if it has this many times the peers wanted."""
CROWD = 64
"""A region is too large if it has more than this many times the peers wanted."""
BARREN = 5
"""Rounds without anything usable after which a neighbour is exchanged, if something is needed."""
PLENTY = 4
"""A pool with more than this many times J live rollouts has more than it can use."""
CALM = 3
"""Rounds of plenty after which a neighbour is given up."""
MIXING = 20
"""Rounds after which one neighbour's place goes to anybody of the region. A swarm that was cut in two finds together
again so, and who is heard by nobody is heard some time."""
GRACE = 15.0
"""Seconds that an absent neighbour keeps its place: longer than a relay takes to come back."""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")
_ID = re.compile(r"[0-9a-f]{64}")


def check_name(name: str, what: str = "swarm") -> str:
    """`name`, if it may stand in a key. Raises `UserError`."""
    if not _NAME.fullmatch(name):
        raise UserError(f"the {what} '{name}' must have 1 to 64 letters, digits, '-', '_' or '.'")
    return name


def shard_of(id: str) -> str:
    return hashlib.blake2b(id.encode(), digest_size=8).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class Keys:
    """The keys of a swarm. Those of another tag, or of another swarm, never meet them."""

    swarm: str
    tag: str = "open"

    def __post_init__(self) -> None:
        check_name(self.swarm)
        check_name(self.tag, "tag")

    def rollouts(self, id: str) -> str:
        return f"shoal/{self.swarm}/{self.tag}/rollouts/{shard_of(id)}/{id}"

    def presence(self, id: str) -> str:
        return f"shoal/{self.swarm}/{self.tag}/peers/{shard_of(id)}/{id}"

    def notices(self, id: str) -> str:
        return f"shoal/{self.swarm}/{self.tag}/notices/{shard_of(id)}/{id}"

    @property
    def all_notices(self) -> str:
        """Matches the notices of all nodes."""
        return f"shoal/{self.swarm}/{self.tag}/notices/**"

    def region(self, prefix: str) -> str:
        """Matches the presence of all peers of a region."""
        shards = prefix if len(prefix) == DIGITS else f"{prefix}$*" if prefix else "*"
        return f"shoal/{self.swarm}/{self.tag}/peers/{shards}/*"

    @property
    def all_tags(self) -> str:
        """Matches the presence of all peers of this swarm's name."""
        return f"shoal/{self.swarm}/*/peers/**"


def peer_of(key: str) -> str | None:
    """The id in a presence key, or None where a stranger made it up: an id has one shard only."""
    *_, shard, id = key.split("/")
    return id if _ID.fullmatch(id) and shard == shard_of(id) else None


def tag_of(key: str) -> str:
    """The tag in a key of a swarm."""
    return key.split("/")[2]


def random_branch(random: Random) -> str:
    return f"{random.randrange(16**DIGITS):0{DIGITS}x}"


def find_region(ask: Callable[[str], set[str]], branch: str, enough: int) -> tuple[str, set[str]]:
    """The smallest region of `branch` with at least `enough` peers, and these peers; all if there is none.

    `ask` tells the peers of the region with a given prefix. It is asked from the smallest upwards: each answer is then
    about 16 times the one before, which was too small, so that none is large however large the swarm is.
    """
    for digits in range(DIGITS, -1, -1):
        prefix = branch[:digits]
        peers = ask(prefix)
        if len(peers) >= enough:
            break
    return prefix, peers


class Neighbours:
    """Which of the peers present a node listens to. Deterministic, given `random`; not thread-safe."""

    def __init__(self, own: str, random: Random, start: int = START, least: int = LEAST, most: int = MOST) -> None:
        if not 1 <= least <= start <= most:
            raise ValueError(f"not in order: least {least}, start {start}, most {most}")
        self.own = own
        self.wanted = start
        self.least = least
        self.most = most
        self.prefix = ""
        self.present: set[str] = set()
        self.chosen: dict[str, int] = {}
        """Those listened to, with the rounds since each brought something usable."""
        self._random = random
        self._brought: Counter[str] = Counter()
        self._absent: dict[str, float] = {}
        self._tried: set[str] = set()
        self._calm = 0
        self._rounds = 0
        self._exhausted = False

    def enter(self, prefix: str, peers: Iterable[str]) -> None:
        """Takes up another region."""
        self.prefix = prefix
        self.present = set(peers) - {self.own}
        self._exhausted = False

    def came(self, id: str) -> None:
        here = id != self.own and shard_of(id).startswith(self.prefix)
        if here and len(self.present) <= CROWD * self.most:  # a stranger may pretend to be many
            self.present.add(id)

    def left(self, id: str) -> None:
        self.present.discard(id)

    def credit(self, id: str, usable: int = 1) -> None:
        """Neighbour `id` brought something usable."""
        if id in self.chosen and usable:
            self.chosen[id] = 0
            self._brought[id] += usable

    def need(self, live: int, wanted: int) -> None:
        """After a round: the pool has `live` rollouts with a gradient, and each update can use `wanted` (J) of them.

        Too few: more neighbours, and others in place of those that bring nothing. Plenty, for a while: fewer. Now and
        then: another one.
        """
        for id in self.chosen:
            self.chosen[id] += 1
        self._rounds += 1
        if self._rounds % MIXING == 0 and self.chosen and self.present - self.chosen.keys():
            self._drop(self._random.choice(sorted(self.chosen)))
        if live < wanted:
            self._calm = 0
            self.wanted = min(self.most, self.wanted + 2)
            self._exchange()
        elif live > PLENTY * wanted:
            self._calm += 1
            if self._calm >= CALM:
                self._calm = 0
                self.wanted = max(self.least, self.wanted - 1)
        else:
            self._calm = 0

    def choose(self, now: float) -> set[str]:
        """Whom to listen to from `now` on (seconds, by any clock).

        A neighbour that is absent keeps its place until somebody else can take it: if a relay dies all are absent, and
        all are there again when it is back, without a gap.
        """
        self._absent = {id: self._absent.get(id, now) for id in self.chosen if id not in self.present}
        while len(self.chosen) > self.wanted:
            self._drop(min(self.chosen, key=self._worth))
        candidates = self._candidates()
        for id in [id for id, since in self._absent.items() if now - since >= GRACE]:
            if len(candidates) > self.wanted - len(self.chosen):
                self._drop(id)
        places = min(len(candidates), self.wanted - len(self.chosen))
        self.chosen |= dict.fromkeys(self._random.sample(candidates, places), 0)
        return set(self.chosen)

    @property
    def stale(self) -> bool:
        """Whether to look for another region: too few peers are left in this one, or none worth trying, or too many."""
        dry = bool(self.prefix) and (len(self.present) < self.wanted or self._exhausted)
        return dry or (len(self.prefix) < DIGITS and len(self.present) > CROWD * self.wanted)

    def _exchange(self) -> None:
        """Gives up to half of the places, barren ones, to peers that have not been tried, as far as there are such."""
        barren = sorted(id for id, rounds in self.chosen.items() if rounds > BARREN)
        fresh = self.present - self.chosen.keys() - self._tried
        if barren and not fresh:
            self._tried.clear()
            self._exhausted = True
        free = max(0, self.wanted - len(self.chosen))
        places = min(len(barren), max(0, len(fresh) - free), max(1, len(self.chosen) // 2))
        for id in self._random.sample(barren, places):
            self._drop(id)
            self._tried.add(id)

    def _candidates(self) -> list[str]:
        """Peers present that are not chosen; those that were given up only if there are no others."""
        others = sorted(self.present - self.chosen.keys())
        return [id for id in others if id not in self._tried] or others

    def _worth(self, id: str) -> tuple[bool, int, str]:
        return id in self.present, self._brought[id], id

    def _drop(self, id: str) -> None:
        del self.chosen[id]
        self._absent.pop(id, None)
        self._brought.pop(id, None)
