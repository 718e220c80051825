"""A node's subscriptions: finds peers, subscribes to some of them, and asks them for the rollouts that it missed.

neighbours = Neighbours(own_id, Random())
subscriptions = Subscriptions(keys, own_id, on_message, neighbours=neighbours, dropped=Counter(), clocks=Clocks())
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
from shoal.admission.clocks import Clocks
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.neighbours import ENOUGH, Neighbours, find_region, random_branch
from shoal.transports.zenoh.offers import HISTORY, MAX_BYTES, SEPARATOR, Offer, digest_of, is_genuine, read_offer
from shoal.wire.signed import Envelope, is_fresh

ANSWERS = 4096  # offers of a region whose signatures are looked at: those that come first
NEIGHBOUR_ANSWERS = 256  # the same of one neighbour; one is honest
UNTIMELY = 64  # offers from another time whose signatures are looked at: the newest
FLOOD = 256  # answers without use since the last look: somebody answers in the names of others
CAREFUL = 30.0  # seconds after a flood in which fewer questions are asked: each brings another one, which hides answers
SPACING = 2.0  # seconds between two questions then
TIMEOUT = 3.0  # seconds that an answer may take
MAX_NOTICE = 1 << 15  # bytes of a notice; readers take less
MAX_FETCHED = 4 << 20  # bytes of rollouts that are accepted for one question

Answer = tuple[Offer, Envelope]
"""An answer that may be an offer: its signature is not checked yet."""
HEARD = 512  # messages of each neighbour that are remembered, to know which ones were missed
ASK, ASK_AGAIN = 10.0, 2.5  # seconds between two questions to a neighbour, and after one without an answer
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
        neighbours: Neighbours,
        dropped: Counter[str],
        clocks: Clocks,
    ) -> None:
        """`id`: of this node. `on_message` is called with the address of a neighbour and a message under its key
        expression, on a Zenoh thread. `dropped` counts messages that were not passed on, since they came before, and
        offers from another time. `clocks` is told of the times of all offers."""
        self.keys = keys
        self.id = id
        self.neighbours = neighbours
        self.subscribers: dict[str, zenoh.Subscriber[None]] = {}
        self.lock = threading.Lock()  # for `neighbours`, `_dropped` and `_heard`
        self._random = Random()  # a seed does not repeat the network
        self._on_message = on_message
        self._dropped, self._clocks = dropped, clocks
        self._queries: Queries | None = None
        self._heard: dict[str, RecentKeys[bytes]] = {}
        """For each neighbour: digests of its messages."""
        self._asked: dict[str, float] = {}
        """When each neighbour was asked last."""
        self._careful_until = self._questioned = -CAREFUL
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
        queries = self._queries = self._queries or Queries(session, self.keys, self._clocks)
        links = len(session.info.links())
        now = time.monotonic()
        if links and not self._linked:  # at the start and after a break: ask at once for what was missed
            self._asked.clear()
            self._searched = -LONGEST
        self._linked = bool(links)
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
            heard = direct(lambda sample, id=id: self._arrived(id, sample.payload.to_bytes()))  # type: ignore[misc]
            self.subscribers[id] = session.declare_subscriber(self.keys.rollouts(id), heard)
        self._catch_up(queries, now)
        if links:
            self._ask(queries, now)

    def _search(self, queries: Queries, missing: int) -> None:
        """Finds a region, and the peers there that have something to give."""
        region: dict[str, Offer] = {}
        with self.lock:
            apart = {*self.neighbours.chosen, self.id}

        def ask(prefix: str) -> set[str]:
            region.clear()
            region.update((offer.id, offer) for offer in queries.survey(prefix) if offer.id not in apart)
            return set(region)

        find_region(ask, random_branch(self._random), ENOUGH * missing)
        giving = [id for id, offer in region.items() if offer.recent]
        with self.lock:
            self.neighbours.found(giving, region, time.monotonic())
            alone = not self.neighbours.known
        self._pause = PAUSE if region else min(2 * self._pause, ALONE if alone else LONGEST)

    def _ask(self, queries: Queries, now: float) -> None:
        """Asks each neighbour now and then what it has."""
        if queries.flooded():
            self._careful_until = now + CAREFUL
        with self.lock:
            waits = {id: ASK_AGAIN if each.unanswered else ASK for id, each in self.neighbours.chosen.items()}
        due = [id for id in self.subscribers if now - self._asked.get(id, -ASK) >= waits[id]]
        if now < self._careful_until:
            due = sorted(due, key=lambda id: self._asked.get(id, -ASK))[: now - self._questioned >= SPACING]
        for id in due:
            self._asked[id] = self._questioned = now
            with self.lock:
                self.neighbours.asked(id)
            queries.ask(id)

    def _catch_up(self, queries: Queries, now: float) -> None:
        """Takes the answers of neighbours, and asks for the rollouts that have not come."""
        with self.lock:
            self._dropped.update(queries.untimely())
        for offer in queries.offers():
            with self.lock:
                heard = self._heard.get(offer.id)
                if heard is None:
                    continue
                self.neighbours.answered(offer.id)
                missed = [digest for digest in offer.digests if digest not in heard]
            self._asked[offer.id] = now
            if missed:
                # From a new neighbour, the last ones only.
                missed = missed[-HISTORY:] if len(missed) == len(offer.digests) else missed
                queries.fetch(offer.id, missed, partial(self._arrived, offer.id))
                self._asked[offer.id] = now - ASK + ASK_AGAIN  # to see soon whether they have come

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

    def __init__(self, session: zenoh.Session, keys: Keys, clocks: Clocks) -> None:
        self._session, self._keys, self._clocks = session, keys, clocks
        self._answers: Newest[Answer] = Newest(ANSWERS)
        self._untimely: Newest[Answer] = Newest(UNTIMELY)
        self._surveyed: list[Offer] = []
        self._useless = 0

    def survey(self, prefix: str) -> list[Offer]:
        """The offers of the peers in a region. Waits while answers come, for `TIMEOUT` seconds at most."""
        answers: list[Answer] = []
        done, cancel = threading.Event(), zenoh.CancellationToken()

        def keep(answer: Answer) -> None:
            answers.append(answer)
            if len(answers) >= ANSWERS:
                done.set()

        self._get(self._keys.region(prefix), self._first(ANSWERS, keep), done.set, cancel)
        done.wait(TIMEOUT)
        cancel.cancel()
        found = self._opened(answers)
        self._surveyed += found
        return found

    def ask(self, id: str) -> None:
        """Asks a peer what it has; `offers` returns the answer."""
        self._get(self._keys.offers(id), self._first(NEIGHBOUR_ANSWERS, lambda answer: self._answers.put([answer])))

    def offers(self) -> list[Offer]:
        """What peers answered since the last call, each by itself or in a survey."""
        surveyed, self._surveyed = self._surveyed, []
        return surveyed + self._opened(self._answers.take())

    def untimely(self) -> Counter[str]:
        """The genuine offers from another time that came since the last call, by what is wrong with it."""
        now = time.time()
        return Counter("future" if offer.time > now else "age" for offer in self._opened(self._untimely.take()))

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

    def flooded(self) -> bool:
        """Whether many answers came without use since the last call."""
        useless, self._useless = self._useless, 0
        return useless > FLOOD

    def _first(self, number: int, keep: Callable[[Answer], None]) -> Callable[[zenoh.Reply], None]:
        """A callback that keeps the first `number` answers that may be offers. Others do not count: otherwise garbage
        that comes sooner would hide an honest answer."""
        left = number

        def arrived(reply: zenoh.Reply) -> None:
            nonlocal left
            sample = reply.ok
            if sample is not None and left and len(sample.payload) <= MAX_BYTES:
                answer = read_offer(self._keys, str(sample.key_expr), sample.payload.to_bytes())
                if answer is not None and is_fresh(answer[0], time.time()):
                    left -= 1
                    keep(answer)
                    return
                self._untimely.put([answer] if answer else [])
            self._useless += 1

        return arrived

    def _opened(self, answers: Iterable[Answer]) -> list[Offer]:
        offers: dict[str, Offer] = {}
        for offer, envelope in answers:
            if offer.id not in offers and is_genuine(self._keys, offer, envelope):
                offers[offer.id] = offer
                self._clocks.note(offer.key, offer.time - time.time())
        return list(offers.values())


def hear_notices(session: zenoh.Session, keys: Keys, on_notice: Callable[[str, bytes], None]) -> Any:
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
