"""A simulated network of up to ten thousand nodes around the real choice of neighbours, admission, pool and sampler.

    net = Network(NetConfig(nodes=512, seconds=300))
    net.run()
    figures(net)                      # bytes a second, staleness, what is in the pool, ... (`simnet.figures`)

Time is simulated: a queue of events. A node makes I rollouts at the end of its round, when it also reads, learns and
says what it needs, as in `node.Node` and `join`; rounds last differently long. Every node has the real `Neighbours` and
searches regions as `SwarmConnection` does; a few observers get real signed bytes at their time and have the real
`Admission`, `Pool` and `UniformSampler`; all others count (`simnet.nodes`). Links delay and lose, nodes come and go,
and the network may be cut in two.

What stands in for the real thing: a dictionary of who answers for the relays, a message lost for good for Zenoh's
losses (which are recovered within seconds), a reward that is written in the text for the verifier, texts of plausible
lengths, and a chance of success that no learning changes.
"""

from __future__ import annotations

import heapq
import itertools
import math
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import lru_cache
from random import Random
from statistics import fmean
from typing import Any

from shoal.config.tasks import TasksConfig
from shoal.rollout import Completion, QuestionId, Rollout
from shoal.tasks import Tasks
from shoal.transports.base import DIGITS, shard_of
from shoal.transports.zenoh.subscriptions import ANSWERS, ASK
from shoal.transports.zenoh.transport import TICK
from shoal.wire.rollouts import seal
from simnet.config import NetConfig
from simnet.nodes import Observer, SimNode
from simnet.tally import SLICE, Tally

START = 1_000_000.0
"""The time at which all begins, since clocks may be wrong and none may be negative."""
STAGGER = 10.0
"""Seconds within which the first nodes come."""


class Network:
    """Who there is, what is on its way, and what time it is. Also the verifier, which reads planted rewards."""

    swarm = "netsim"

    def __init__(self, config: NetConfig) -> None:
        if not 0 < config.observers <= config.nodes or not config.seconds > config.warm_up >= STAGGER:
            raise ValueError("at least one observer, not more than nodes; and seconds > warm_up >= 10")
        self.config = config
        self.now = START
        self.tasks = Tasks(TasksConfig())
        self.tally = Tally(config)
        self.nodes: dict[str, SimNode] = {}
        self.named: dict[str, SimNode] = {}
        self.observers: list[Observer] = []
        self.across: list[tuple[float, float]] = []
        """Every few seconds, where there is a cut: the share of subscriptions to nodes of the other side."""
        self.in_flight = 0
        """Messages on their way to observers."""
        self._random = Random(f"{config.seed}/network")
        self._events: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count()
        self._present: defaultdict[str, set[str]] = defaultdict(set)
        lengths = [self._random.lognormvariate(0.0, 0.5) * config.characters for _ in range(config.wrong + 1)]
        words = [("so it is " * 400)[: min(4000, int(length))] for length in lengths]
        self._texts = [f"{'wrong' if n else 'right'} {n} {text}" for n, text in enumerate(words)]
        self._base = 0
        self.seal = lru_cache(4096)(self._seal)

    def run(self) -> None:
        config = self.config
        for number in range(config.nodes):  # a swarm that exists: all are there when the first one looks for others
            node = self._make(number < config.observers)
            self._declare(node, True)
            self.at(START + self._random.random() * STAGGER, self._enter, node)
        self.at(START + config.warm_up, self._warmed_up)
        if config.cut:
            self.at(START, self._look_across)
        end = START + config.seconds
        while self._events and self._events[0][0] <= end:
            self.now, _, act, args = heapq.heappop(self._events)
            act(*args)
        self.now = end

    def at(self, time: float, act: Callable[..., object], *args: Any) -> None:
        heapq.heappush(self._events, (time, next(self._order), act, args))

    @property
    def unread(self) -> int:
        """Messages that were sent and are neither received nor lost."""
        links = [link for node in self.nodes.values() for link in node.links.values()]
        return self.in_flight + sum(link.maker.round - link.next for link in links) * self.config.local

    # Who is there.

    def ask(self, prefix: str, asking: SimNode) -> set[str]:
        """The peers of a region that answer (`asking.Asking.survey`)."""
        found = {id for id in self._present[prefix] if self.answers(self.nodes[id], asking)} - {asking.id}
        return found if len(found) <= ANSWERS else set(sorted(found)[:ANSWERS])

    def answers(self, node: SimNode, asking: SimNode) -> bool:
        """Whether `node` is there for `asking`. Those who went without a word are missed at once: nobody answers."""
        return node.alive and not self.severed(node, asking, self.now)

    def severed(self, one: SimNode, other: SimNode, time: float) -> bool:
        """Whether nothing goes between the two at `time`."""
        cut = self.config.cut
        return cut is not None and one.side != other.side and START + cut[0] <= time < START + cut[1]

    def _make(self, stays: bool) -> SimNode:
        node = (Observer if stays else SimNode)(self, next(self._numbers), self.now)
        self.nodes[node.id] = self.named[node.identity.name] = node
        if isinstance(node, Observer):
            self.observers.append(node)
        else:
            self.at(self.now + STAGGER + node.random.expovariate(1 / self.config.session), self._leave, node)
        return node

    def _enter(self, node: SimNode) -> None:
        self.at(self.now + node.random.random() * node.period, self._round, node)
        self._tend(node)
        self.at(self.now, self._ask, node)

    def _leave(self, node: SimNode) -> None:
        node.leave(self.now)
        self.at(self.now + self.config.delay, self._declare, node, False)
        comes = self._make(False)
        self.at(self.now + self.config.delay, self._declare, comes, True)
        self._enter(comes)

    def _declare(self, node: SimNode, came: bool) -> None:
        """A node can be found, or no more."""
        for digits in range(DIGITS + 1):
            prefix = shard_of(node.id)[:digits]
            (self._present[prefix].add if came else self._present[prefix].discard)(node.id)

    def _look_across(self) -> None:
        links = [link for node in self.nodes.values() for link in node.links.values()]
        self.across.append(
            (self.now - START, fmean(link.listener.side != link.maker.side for link in links) if links else math.nan)
        )
        self.at(self.now + SLICE, self._look_across)

    def _tend(self, node: SimNode) -> None:
        """Now, and each second while a place is free."""
        node.due = None
        if node.alive:
            node.tend(self.now)
            if node.neighbours.missing:
                self._tend_later(node)

    def _tend_later(self, node: SimNode) -> None:
        if node.due is None:
            node.due = self.now + TICK
            self.at(node.due, self._tend, node)

    def _ask(self, node: SimNode) -> None:
        """A node asks its neighbours what they have."""
        if node.alive:
            node.ask(self.now)
            self.at(self.now + ASK, self._ask, node)
            self._tend_later(node)

    def _warmed_up(self) -> None:
        self.tally.warm = True

    # What they make.

    def _round(self, node: SimNode) -> None:
        if not node.alive:
            return
        node.make(self.now)
        self.tally.published(node.batches[-1].size, node.listeners)
        for link in list(node.watchers):
            assert isinstance(link.listener, Observer)
            link.listener.expect(link)
        node.learn(self.now)
        self._tend(node)
        duration = node.period * node.random.lognormvariate(0.0, self.config.round_jitter)
        self.at(self.now + duration, self._round, node)

    def size_of(self, answers: bytes) -> int:
        """Bytes of a message with these answers, but for a few."""
        if not self._base:
            node = next(iter(self.nodes.values()))
            data = seal(self._rollout(node, 1, 0, answers), node.identity, self.swarm, self.now)
            self._base = len(data) - sum(len(self._texts[n]) for n in answers)
        return self._base + sum(len(self._texts[n]) for n in answers)

    def _seal(self, maker: SimNode, round: int, slot: int) -> bytes:
        """A rollout as its maker signed it."""
        batch = maker.batches[round - 1 - maker.first]
        rollout = self._rollout(maker, round, slot, batch.answers[slot])
        return seal(rollout, maker.identity, self.swarm, batch.time + maker.skew)

    def _rollout(self, maker: SimNode, round: int, slot: int, answers: bytes) -> Rollout:
        question = self.tasks.draw(slot + 1, self.swarm, maker.id, round)[slot]
        completions = tuple(Completion.of(self._texts[n]) for n in answers)
        return Rollout(question.id, question.hash, completions, maker.identity.name, round, slot)

    trouble = ""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        """The planted rewards."""
        return [[float(text.startswith("right")) for text in texts] for _, texts in items]
