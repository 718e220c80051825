"""A node's subscriptions: finds peers, subscribes to some of them, and asks them for the rollouts that it missed.

subscriptions = Subscriptions(keys, own_id, on_message, is_own=offered.has_signed)
subscriptions.tend(session)          # about once a second
subscriptions.need(live, wanted)     # once a round: more neighbours if the pool runs dry
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from random import Random
from typing import Any

import zenoh

from shoal.admission.bounded import Newest, RecentKeys
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.neighbours import ENOUGH, Neighbours, find_region, random_branch
from shoal.transports.zenoh.offers import HISTORY, MAX_BYTES, SEPARATOR, Offer, digest_of, open_offer

ANSWERS = 4096  # answers of a region that are looked at: those that come first
NEIGHBOUR_ANSWERS = 256  # answers to a question to one neighbour that are looked at; one is honest
TIMEOUT = 3.0  # seconds that an answer may take
MAX_NOTICE = 1 << 15  # bytes of a notice; readers take less
MAX_FETCHED = 4 << 20  # bytes of rollouts that are accepted for one question

Answer = tuple[str, bytes]
"""The key expression of an answer, and its bytes."""
HEARD = 512  # messages of each neighbour that are remembered, to know which ones were missed
ASK, ASK_AGAIN = 10.0, 2.5  # seconds between two questions to a neighbour, and after one without an answer
CHECK = 5.0  # seconds between two questions whether another node has this node's key; nobody else is asked
PAUSE, ALONE, LONGEST = 2.0, 4.0, 30.0
"""Seconds between two searches for peers: at first, at most while nobody was found, and at most."""


class Subscriptions:
    """One thread calls `tend`. Other threads may call the other methods."""

    def __init__(
        self,
        keys: Keys,
        id: str,
        on_message: Callable[[str, bytes], None],
        *,
        is_own: Callable[[Offer], bool],
        neighbours: Neighbours,
        dropped: Counter[str],
    ) -> None:
        """`id`: of this node. `on_message` is called with the address of a neighbour and a message under its key
        expression, on a Zenoh thread. `is_own`: whether this node itself made an offer that has its key. `dropped`
        counts messages that were not passed on, since they came before."""
        self.keys = keys
        self.id = id
        self.neighbours = neighbours
        self.subscribers: dict[str, zenoh.Subscriber[None]] = {}
        self.lock = threading.Lock()  # for `neighbours`, `_dropped` and `_heard`
        self.copy_seen: float | None = None
        """When another node with this node's key was noticed, in seconds since 1970."""
        self._is_own = is_own
        self._started, self._checked = time.time(), -CHECK
        self._random = Random()  # a seed does not repeat the network
        self._on_message = on_message
        self._dropped = dropped
        self._queries: Queries | None = None
        self._heard: dict[str, RecentKeys[bytes]] = {}
        """For each neighbour: digests of its messages."""
        self._asked: dict[str, float] = {}
        """When each neighbour was asked last."""
        self._searched, self._pause = -LONGEST, PAUSE
        self._linked = False

    def need(self, live: int, wanted: int) -> None:
        """The pool has `live` rollouts with a gradient, and an update can use `wanted` (J)."""
        with self.lock:
            self.neighbours.need(live, wanted)

    def credit(self, id: str) -> None:
        """A neighbour brought a usable rollout."""
        with self.lock:
            self.neighbours.credit(id)

    def tend(self, session: zenoh.Session) -> None:
        """Takes answers, searches for peers, chooses neighbours, and asks them what they have."""
        queries = self._queries = self._queries or Queries(session, self.keys)
        links = len(session.info.links())
        now = time.monotonic()
        if links and not self._linked:  # at the start and after a break: ask at once for what was missed
            self._asked.clear()
            self._searched = -LONGEST
        self._linked = bool(links)
        self._catch_up(queries)
        with self.lock:
            missing = self.neighbours.missing
        # Without a link nobody can answer, and the region would seem to be empty.
        if missing and links and now - self._searched >= self._pause:
            self._search(queries, missing)
            self._searched = now = time.monotonic()
        with self.lock:
            chosen = self.neighbours.choose(now)
        for id in self.subscribers.keys() - chosen:
            self.subscribers.pop(id).undeclare()
            self._asked.pop(id, None)
            with self.lock:
                self._heard.pop(id, None)
        for id in chosen - self.subscribers.keys():
            with self.lock:
                self._heard[id] = RecentKeys(HEARD)
            self.subscribers[id] = self._subscribe(session, id)
        if links:
            self._ask(queries, now)
            if now - self._checked >= CHECK:
                self._checked = now
                queries.ask(self.id)

    def _search(self, queries: Queries, missing: int) -> None:
        """Finds a region, and the peers there that have something to give."""
        region: dict[str, Offer] = {}
        with self.lock:
            apart = {*self.neighbours.chosen, self.id}

        def ask(prefix: str) -> set[str]:
            region.clear()
            region.update((offer.id, offer) for offer in queries.survey(prefix) if offer.id not in apart)
            return set(region)

        prefix = find_region(ask, random_branch(self._random), ENOUGH * missing)
        giving = [id for id, offer in region.items() if offer.recent]
        with self.lock:
            self.neighbours.found(prefix, giving, region, time.monotonic())
            alone = not self.neighbours.known
        self._pause = PAUSE if region else min(2 * self._pause, ALONE if alone else LONGEST)

    def _ask(self, queries: Queries, now: float) -> None:
        """Asks each neighbour now and then what it has."""
        with self.lock:
            waits = {id: ASK_AGAIN if each.unanswered else ASK for id, each in self.neighbours.chosen.items()}
            due = [id for id in self.subscribers if now - self._asked.get(id, -ASK) >= waits[id]]
            for id in due:
                self.neighbours.asked(id)
        for id in due:
            self._asked[id] = now
            queries.ask(id)

    def _catch_up(self, queries: Queries) -> None:
        """Takes the answers of neighbours, and asks for the rollouts that have not come."""
        for offer in queries.offers():
            # Others can only repeat what this key has signed: an offer that is new and not this node's proves a copy.
            if offer.id == self.id and offer.time > self._started and not self._is_own(offer):
                self.copy_seen = time.time()
            with self.lock:
                heard = self._heard.get(offer.id)
                if heard is None:
                    continue
                self.neighbours.answered(offer.id)
                missed = [digest for digest in offer.digests if digest not in heard]
            if missed:
                # From a new neighbour, the last ones only.
                missed = missed[-HISTORY:] if len(missed) == len(offer.digests) else missed
                queries.fetch(offer.id, missed, partial(self._arrived, offer.id))

    def _subscribe(self, session: zenoh.Session, id: str) -> zenoh.Subscriber[None]:
        key = self.keys.rollouts(id)
        return session.declare_subscriber(key, direct(lambda sample: self._arrived(id, sample.payload.to_bytes())))

    def _arrived(self, peer: str, data: bytes) -> None:
        """Zenoh's callback: a message under the key expression of `peer`, where anybody may write, or one that this
        node asked for."""
        with self.lock:
            heard = self._heard.get(peer)
            if heard is None:
                return
            if not heard.add(digest_of(data)):  # also of what is too large: it is not asked for again
                self._dropped["repeated"] += 1
                return
        self._on_message(self.keys.secret.address(peer), data)


class Queries:
    """Questions on a session. Only one thread may call `survey` and `offers`."""

    def __init__(self, session: zenoh.Session, keys: Keys) -> None:
        self._session, self._keys = session, keys
        self._answers: Newest[Answer] = Newest(ANSWERS)

    def survey(self, prefix: str) -> list[Offer]:
        """The offers of the peers in a region. Waits while answers come, for `TIMEOUT` seconds at most."""
        answers: list[Answer] = []
        done, cancel = threading.Event(), zenoh.CancellationToken()

        def keep(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) >= ANSWERS:
                done.set()

        self._get(self._keys.region(prefix), _first(ANSWERS, keep), done.set, cancel)
        done.wait(TIMEOUT)
        cancel.cancel()
        return self._opened(answers)

    def ask(self, id: str) -> None:
        """Asks a neighbour what it has; `offers` returns the answer."""
        self._get(self._keys.offers(id), _first(NEIGHBOUR_ANSWERS, lambda answer: self._answers.put([answer])))

    def offers(self) -> list[Offer]:
        """What neighbours answered since the last call."""
        return self._opened(self._answers.take())

    def fetch(self, id: str, digests: Iterable[bytes], on_rollout: Callable[[bytes], None]) -> None:
        """Asks a neighbour for the rollouts with these digests. Calls `on_rollout` with each, on a Zenoh thread; other
        answers are ignored."""
        wanted = set(digests)
        size = 0

        def arrived(reply: zenoh.Reply) -> None:
            nonlocal size
            sample = reply.ok
            if sample is None or size > MAX_FETCHED or not wanted:
                return
            size += len(sample.payload)
            data = sample.payload.to_bytes()
            digest = digest_of(data)
            if digest in wanted:
                wanted.discard(digest)
                on_rollout(data)

        want = SEPARATOR.join(digest.hex() for digest in digests)
        self._get(f"{self._keys.offers(id)}?want={want}", arrived)

    def _get(
        self,
        selector: str,
        arrived: Callable[[zenoh.Reply], None],
        done: Callable[[], Any] | None = None,
        cancel: zenoh.CancellationToken | None = None,
    ) -> None:
        self._session.get(
            selector,
            direct(arrived, done),
            target=zenoh.QueryTarget.ALL,
            consolidation=zenoh.ConsolidationMode.NONE,
            congestion_control=zenoh.CongestionControl.DROP,
            allowed_destination=zenoh.Locality.REMOTE,
            timeout=TIMEOUT,
            cancellation_token=cancel,
        )

    def _opened(self, answers: Iterable[Answer]) -> list[Offer]:
        now = time.time()
        offers: dict[str, Offer] = {}
        for key, data in answers:
            offer = None if key in offers else open_offer(self._keys, key, data, now)
            if offer is not None:
                offers[key] = offer
        return list(offers.values())


def hear_notices(session: zenoh.Session, keys: Keys, on_notice: Callable[[str, bytes], None]) -> object:
    """Hears all notices of a swarm as long as the result lives: `on_notice` gets the address and the bytes, on a Zenoh
    thread."""

    def arrived(sample: Any) -> None:
        if sample.kind == zenoh.SampleKind.PUT and len(sample.payload) <= MAX_NOTICE:
            on_notice(str(sample.key_expr).rpartition("/")[2], sample.payload.to_bytes())

    return session.declare_subscriber(keys.all_notices, direct(arrived))


def direct(callback: Callable[[Any], object], done: Callable[[], object] | None = None) -> Callable[[Any], Any]:
    """A callback on Zenoh's own thread: the link waits while it runs. Otherwise Zenoh stores what comes faster than the
    callback runs, without a bound."""
    return zenoh.handlers.Callback(callback, done, indirect=False)


def _first(number: int, keep: Callable[[Answer], None]) -> Callable[[zenoh.Reply], None]:
    """A callback that keeps the first `number` answers that are small enough for an offer."""
    count = 0

    def arrived(reply: zenoh.Reply) -> None:
        nonlocal count
        sample = reply.ok
        if sample is not None and count < number and len(sample.payload) <= MAX_BYTES:
            count += 1
            keep((str(sample.key_expr), sample.payload.to_bytes()))

    return arrived
