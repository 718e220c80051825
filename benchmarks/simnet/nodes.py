"""Nodes of the simulated network: all choose neighbours by the real code; observers do everything by it.

A `SimNode` reads what its neighbours made when its round ends and only counts: rollouts, live ones, bytes. An
`Observer` gets each message at its time, as signed bytes, and has a real admission, pool and sampler.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple, Protocol

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from stand_ins import LocalExaminer

from shoal.admission.admission import Admission
from shoal.admission.bounded import Newest
from shoal.admission.limits import AdmissionLimits
from shoal.identity.keys import Identity
from shoal.protocols import Grader
from shoal.rollout import Scored, seed_of
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection
from shoal.tasks import Tasks
from shoal.transports.zenoh.neighbours import ENOUGH, Neighbours, find_region, random_branch
from shoal.transports.zenoh.offers import HISTORY
from shoal.transports.zenoh.subscriptions import ALONE, LONGEST, PAUSE
from simnet.config import NetConfig
from simnet.tally import Tally, Use

KEPT = 64
"""Batches of a maker that can still be read: more than a slow listener misses between two of its rounds."""


class Surroundings(Grader, Protocol):
    """What a node needs of the network around it (`simnet.network.Network`)."""

    swarm: str
    config: NetConfig
    now: float
    tasks: Tasks
    tally: Tally
    nodes: Mapping[str, SimNode]
    """By id."""
    named: Mapping[str, SimNode]
    """By name."""
    in_flight: int
    seal: Callable[[SimNode, int, int], bytes]

    def at(self, time: float, act: Callable[..., object], *args: Any) -> None: ...

    def ask(self, prefix: str, asking: SimNode) -> set[str]: ...

    def answers(self, node: SimNode, asking: SimNode) -> bool: ...

    def severed(self, one: SimNode, other: SimNode, time: float) -> bool: ...

    def size_of(self, answers: bytes) -> int: ...


class Batch(NamedTuple):
    """What a node made in one round."""

    time: float
    answers: tuple[bytes, ...]
    """For each rollout, which answers it gave: 0 is the right one."""
    size: int
    """Bytes of all its messages."""
    live: int
    """Which rollouts are live, as bits."""


class Link:
    """A subscription: what `listener` has of `maker`."""

    def __init__(self, listener: SimNode, maker: SimNode, delay: float, now: float) -> None:
        self.listener, self.maker, self.delay, self.since = listener, maker, delay, now
        history = max(1, HISTORY // listener.net.config.local) if maker.alive else 0
        self.next = max(maker.first, maker.round - history)
        """The batch that is read next: 0 is that of round 1."""
        self.due: float | None = None
        """When it arrives, if that has been drawn."""
        self.open = True

    def arrival(self, batch: Batch) -> float:
        """History is asked for, and takes two ways."""
        config = self.listener.net.config
        jitter = self.listener.random.lognormvariate(0.0, config.jitter)
        return max(batch.time, self.since + self.delay) + self.delay * jitter


class SimNode:
    """A node with real neighbours, which makes rollouts and counts what it hears."""

    def __init__(self, net: Surroundings, number: int, now: float) -> None:
        self.net, self.born = net, now
        config = net.config
        self.random = Random(f"{config.seed}/{number}")
        self.identity = Identity(Ed25519PrivateKey.from_private_bytes(self.random.randbytes(32)))
        self.id = self.identity.id
        self.neighbours = Neighbours(self.id, self.random)
        self.p = 1 / (1 + 2.718281828 ** -self.random.gauss(config.skill, config.skill_spread))
        self.period = self.random.lognormvariate(0.0, config.round_spread) * config.round_seconds
        self.skew = self.random.gauss(0.0, config.skew)
        self.side = self.random.random() < config.cut_share
        self.alive = True
        self.round = 0
        self.batches: deque[Batch] = deque(maxlen=KEPT)
        self.times: list[float] = []
        """Of all batches."""
        self.links: dict[str, Link] = {}
        self.listeners = 0
        self.watchers: list[Link] = []
        """The observers among them."""
        self.searched, self.pause = now - LONGEST, PAUSE
        self.due: float | None = None
        """When it looks at its neighbours again, if that is planned."""
        self._read: dict[str, int] = {}
        """Of each maker, how many batches have come: what comes again is a replay."""
        self._pool: deque[list[int]] = deque()
        """Live rollouts by the round in which they came."""
        self._came = 0

    @property
    def first(self) -> int:
        """The oldest batch that is kept."""
        return self.round - len(self.batches)

    # As in `SwarmConnection`: whom to listen to.

    def tend(self, now: float) -> None:
        for link in self.links.values():
            self._read_link(link, now)
        if self.neighbours.missing and now - self.searched >= self.pause:
            self._search(now)
        chosen = self.neighbours.choose(now)
        for id in sorted(self.links.keys() - chosen):
            self._close(self.links.pop(id), now)
        for id in sorted(chosen - self.links.keys()):
            delay = self.random.lognormvariate(0.0, self.net.config.delay_spread) * self.net.config.delay
            self.links[id] = link = Link(self, self.net.nodes[id], delay, now)
            link.maker.listeners += 1
            self.net.tally.count("sent", (link.maker.round - link.next) * self.net.config.local)
            self._opened(link)

    def ask(self, now: float) -> None:
        """Asks each neighbour what it has."""
        for id, link in self.links.items():
            self.neighbours.asked(id)
            if self.net.answers(link.maker, self):
                self.neighbours.answered(id)
                self.net.tally.offers(1)

    def _search(self, now: float) -> None:
        apart = {*self.neighbours.chosen}

        def ask(prefix: str) -> set[str]:
            found = self.net.ask(prefix, self)
            self.net.tally.offers(len(found))
            return found - apart

        prefix = find_region(ask, random_branch(self.random), ENOUGH * self.neighbours.missing)
        peers = self.net.ask(prefix, self)
        giving = [id for id in peers if self.net.nodes[id].round]
        self.neighbours.found(giving, peers, now)
        self.searched = now
        longest = LONGEST if self.neighbours.known else ALONE
        self.pause = PAUSE if peers - apart else min(2 * self.pause, longest)
        self.net.tally.count("searches")

    def _opened(self, link: Link) -> None:
        """A light node reads when its round ends."""

    def _close(self, link: Link, now: float) -> None:
        link.open = False
        link.maker.listeners -= 1
        self._read_link(link, now)
        self.net.tally.count("left", (link.maker.round - link.next) * self.net.config.local)

    def leave(self, now: float) -> None:
        self.alive = False
        for id in sorted(self.links):
            self._close(self.links.pop(id), now)

    # A round.

    def make(self, now: float) -> None:
        config = self.net.config
        answers = tuple(
            bytes(
                0 if self.random.random() < self.p else 1 + int(self.random.random() * config.wrong)
                for _ in range(config.num_generations)
            )
            for _ in range(config.local)
        )
        live = sum(1 << n for n, group in enumerate(answers) if 0 < group.count(0) < len(group))
        self.round += 1
        self.times.append(now)
        self.batches.append(Batch(now, answers, sum(map(self.net.size_of, answers)), live))

    def learn(self, now: float) -> None:
        """Reads, learns from up to J live rollouts, and asks for more or fewer neighbours."""
        for link in self.links.values():
            self._read_link(link, now)
        self._pool.append([self.round, self._came])
        self._came = 0
        while self._pool[0][0] < self.round - self.net.config.max_age:
            self._pool.popleft()
        live = sum(count for _, count in self._pool)
        self.net.tally.light_round(live, self.round, now)
        use = min(self.net.config.peers, live)
        for entry in self._pool:  # which are taken makes no difference but for their age
            taken = min(use, entry[1])
            entry[1] -= taken
            use -= taken
        self.neighbours.need(sum(count for _, count in self._pool), self.net.config.peers)

    def _read_link(self, link: Link, now: float) -> None:
        maker, config, tally = link.maker, self.net.config, self.net.tally
        while link.next < maker.round:
            if link.next < maker.first:
                tally.count("overrun", (maker.first - link.next) * config.local)
                link.next = maker.first
            batch = maker.batches[link.next - maker.first]
            link.due = link.due or link.arrival(batch)
            if link.due > now:
                return
            new = link.next >= self._read.get(maker.id, 0)
            for slot in range(config.local):
                if self.random.random() < config.loss or self.net.severed(self, maker, max(batch.time, link.since)):
                    tally.count("lost")
                    continue
                tally.rollout(batch.size / config.local)
                if new and batch.live >> slot & 1:
                    self._came += 1
                    self.neighbours.credit(maker.id)
            link.next, link.due = link.next + 1, None
            self._read[maker.id] = max(self._read.get(maker.id, 0), link.next)


RECEIVED = 1024
"""Admitted rollouts that wait for an observer."""


class Observer(SimNode):
    """A node by the real code throughout; it stays."""

    def __init__(self, net: Surroundings, number: int, now: float) -> None:
        super().__init__(net, number, now)
        config = AdmissionLimits(max_characters=4096)
        self.admission = Admission(
            net.swarm,
            LocalExaminer(net.tasks, net),
            config,
            num_generations=net.config.num_generations,
            clock=lambda: net.now + self.skew,
        )
        self.pool = Pool(net.config.pool_size, net.config.max_age)
        self.received: Newest[Scored] = Newest(RECEIVED)
        self.selection = FairSelection()
        self.used = self.dropped = 0

    def _opened(self, link: Link) -> None:
        link.maker.watchers.append(link)
        while link.next < link.maker.round:
            self.expect(link)

    def expect(self, link: Link) -> None:
        """The next batch of a maker is on its way."""
        maker, config = link.maker, self.net.config
        batch = maker.batches[link.next - maker.first]
        link.next += 1
        for slot in range(config.local):
            if self.random.random() < config.loss or self.net.severed(self, maker, max(batch.time, link.since)):
                self.net.tally.count("lost")
            else:
                data = self.net.seal(maker, link.next, slot)
                self.net.at(link.arrival(batch), self._arrive, link, data)
                self.net.in_flight += 1

    def _arrive(self, link: Link, data: bytes) -> None:
        self.net.in_flight -= 1
        if not link.open:
            return self.net.tally.count("left")
        self.net.tally.rollout(len(data))
        self.net.tally.observed(len(data))
        admitted = self.admission.admit([(link.maker.id, data)])
        self.received.put(admitted)
        self.neighbours.credit(link.maker.id, sum(scored.live for scored in admitted))

    def _read_link(self, link: Link, now: float) -> None:
        """Messages arrive at their times."""

    def _close(self, link: Link, now: float) -> None:
        link.open = False
        link.maker.listeners -= 1
        link.maker.watchers.remove(link)

    def learn(self, now: float) -> None:
        config = self.net.config
        received = self.received.take()
        before = len(self.pool) + len(received)
        self.pool.add(received, self.round)
        self.dropped += before - len(self.pool)
        candidates = self.pool.candidates()
        chosen = self.selection.choose_of_peers(candidates, config.peers, seed_of(config.seed, self.id, self.round))
        self.pool.remove(chosen)
        self.used += len(chosen)
        now = self.net.now
        uses = [self._use(scored, now) for scored in chosen]
        wanted, region = self.neighbours.wanted, len(self.neighbours.known)
        self.net.tally.observed_round(self.round, now, candidates, chosen, uses, wanted=wanted, region=region)
        self.neighbours.need(sum(scored.live for scored in self.pool.candidates()), config.peers)

    def _use(self, scored: Scored, now: float) -> Use:
        maker, round = self.net.named[scored.rollout.node], scored.rollout.round
        return Use(now - maker.times[round - 1], maker.round - round, not maker.alive)
