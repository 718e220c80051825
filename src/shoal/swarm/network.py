"""A node's place in a networked swarm, on Eclipse Zenoh.

    link = NetworkLink(TransportOptions(connect=("relay.example.org:7447",)), "reef", identity, seal, admission)
    link.share(rollouts)         # at once: a thread of its own signs and sends
    link.receive()               # at once: what another thread has admitted since the last call
    link.need(live, wanted)      # once a round: more neighbours if the pool runs dry
    link.close()

    share() -> outbox -> sender: seal, put -> Zenoh
    Zenoh -> intake: admit -> receive()
    keeper: opens the session, looks for peers, subscribes to some of them, and asks them for what was missed
    answerer: tells others what this node has, and hands out its last rollouts again

Every queue is bounded and loses its oldest, which is counted: the trainer never waits for the network, nor the network
for the trainer. Without a link a node is a silo, and takes up sharing when the link comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Protocol

import zenoh

from shoal.identity.keys import name_of
from shoal.identity.secret import OPEN, Secret
from shoal.rollout import Rollout, Scored
from shoal.swarm.asking import Asking, direct
from shoal.swarm.intake import Admitting, Intake
from shoal.swarm.limits import Recent
from shoal.swarm.neighbours import ENOUGH, Keys, Neighbours, find_region, random_branch, shard_of
from shoal.swarm.offers import HISTORY, Offer, Shelf, digest_of
from shoal.swarm.queues import Meter, Newest
from shoal.swarm.transport import TransportOptions, Unreachable, open_session

logger = logging.getLogger(__name__)

OUTBOX = 256
"""Own rollouts that wait for a link."""
HEARD = 512
"""Messages of each neighbour that are remembered, to know which ones were missed."""
ASK, AGAIN = 10.0, 2.5
"""Seconds between two questions to a neighbour what it has, and after one without an answer."""
QUESTIONS = 256
"""Questions of others that wait for an answer."""
TICK = 1.0
"""Seconds between two looks at neighbours and region, if nothing happens."""
PAUSE, ALONE, LONGEST = 2.0, 4.0, 30.0
"""Seconds between two searches for peers at first, at most while nobody was found, and at most."""
RETRY = (0.5, 15.0)
"""Seconds until the first and between later attempts to reach a relay at start-up."""
FAREWELL = 2.0
"""Seconds that `close` waits for each of its threads."""


class Identity(Protocol):
    """Who a node is: a key pair."""

    @property
    def name(self) -> str: ...

    @property
    def public(self) -> bytes: ...

    @property
    def id(self) -> str: ...

    def sign(self, data: bytes) -> bytes: ...


class NetworkLink:
    """One node's end of a networked swarm: a `Swarm`, and `need`, `tell`, `status` and `close`.

    Raises `UserError` for endpoints that cannot be used. That nobody answers there is no error.
    """

    def __init__(
        self,
        options: TransportOptions,
        swarm: str,
        identity: Identity,
        seal: Callable[[Rollout], bytes],
        admission: Admitting,
        *,
        secret: Secret = OPEN,
        max_bytes: int = 262_144,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`seal` makes the signed bytes of an own rollout, on a thread of the link. `secret` hides a private swarm.
        Messages of more than `max_bytes` are not looked at."""
        self.keys = Keys(swarm, secret)
        self.identity = identity
        self.dropped: Counter[str] = Counter()
        """Messages that were not even given to the admission, by reason: `size`, `replay`, `secret`."""
        self.faults = 0
        """Errors of this program's own in the threads of the link."""
        self._options = options
        self._seal = seal
        self._admission = admission
        self._max_bytes = max_bytes
        self._random = Random()  # whom one listens to is no part of what a seed makes repeatable
        self._neighbours = neighbours or Neighbours(identity.id, self._random)
        self._outbox: Newest[Rollout] = Newest(OUTBOX)
        self._intake = Intake(admission, self._admitted)
        self._sent, self._came = Meter(), Meter()
        self._trouble = ""
        self._alone_since: float | None = time.time()
        self._lock = threading.Lock()  # of `_neighbours` and `dropped`, which callbacks, threads and the trainer touch
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._subscribers: dict[str, zenoh.Subscriber[None]] = {}
        self._shelf = Shelf(self.keys, identity)
        self._questions: Newest[zenoh.Query] = Newest(QUESTIONS)
        self._heard: dict[str, Recent[bytes, None]] = {}
        """Digests of what came of each neighbour."""
        self._asked: dict[str, float] = {}
        """When each neighbour was asked last what it has."""
        self._asking: Asking | None = None
        self._searched, self._pause = -LONGEST, PAUSE
        self._linked = False
        # A client waits for its relay on the keeper's thread; a peer opens at once, or not at all.
        self._session = None if options.mode == "client" else open_session(options)
        self._threads = [
            threading.Thread(target=work, name=f"shoal-{work.__name__.strip('_')}", daemon=True)
            for work in (self._keep, self._send, self._answer)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def seed_key(self) -> tuple[str | int, ...]:
        return self.keys.swarm, self.identity.id

    @property
    def refused(self) -> int:
        return sum(self._admission.refused.values()) + self.dropped.total() + self._intake.lost

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self._outbox.put(rollouts)

    def tell(self, notice: bytes) -> None:
        """Says something to whoever watches, if there is a link; nobody else hears it."""
        if self._session is not None and self._ready.is_set() and not self._closed.is_set():
            with contextlib.suppress(zenoh.ZError):
                key, drop = self.keys.notices(self.identity.id), zenoh.CongestionControl.DROP
                self._session.put(key, self.keys.secret.lock(key, notice), congestion_control=drop)

    def receive(self) -> list[Scored]:
        return self._intake.take()

    def need(self, live: int, wanted: int) -> None:
        """Once a round: the pool has `live` rollouts with a gradient, and an update can use `wanted` (J)."""
        with self._lock:
            self._neighbours.need(live, wanted)
        self._wake.set()

    def save(self, folder: Path) -> None:
        self._admission.save(folder)

    def load(self, folder: Path) -> None:
        self._intake.load(folder)

    def status(self) -> dict[str, Any]:
        """How it stands, as plain data. Times are seconds since 1970."""
        links = len(self._session.info.links()) if self._session else 0
        self._note_company(links)
        with self._lock:
            peers, wanted, region = len(self._neighbours.known), self._neighbours.wanted, self._neighbours.prefix
            neighbours = sorted(id for id, place in self._neighbours.chosen.items() if place.there and links)
        return {
            "swarm": self.keys.swarm,
            "private": self.keys.secret.private,
            "id": self.identity.id,
            "name": self.identity.name,
            "mode": self._options.mode,
            "shard": shard_of(self.keys.secret.address(self.identity.id)),
            "region": region,
            "peers": peers if links else 0,
            "neighbours": [{"id": id, "name": name_of(bytes.fromhex(id))} for id in neighbours],
            "wanted": wanted,
            "links": links,
            "silo": self._alone_since is not None,
            "silo_since": self._alone_since,
            "note": self._note(links),
            "sent": {**self._sent.status(), "overflow": self._outbox.lost, "waiting": len(self._outbox)},
            "received": {**self._came.status(), "overflow": self._intake.lost},
            "dropped": dict(self.dropped),
            "refused": dict(self._admission.refused),
            "faults": self.faults + self._intake.faults,
        }

    def close(self) -> None:
        """Sends what waits, for up to two seconds, and leaves."""
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(FAREWELL)
        if self._session is not None:
            self._session.close()
        self._intake.close()

    # The keeper: the session, and whom to listen to.

    def _keep(self) -> None:
        pause = RETRY[0]
        while not self._closed.is_set():
            try:
                if self._session is None:
                    self._session = open_session(self._options)
                if self._asking is None:
                    self._enter(self._session)
                assert self._asking is not None
                self._tend(self._session, self._asking)
            except Unreachable as error:
                self._trouble = str(error)
                self._closed.wait(pause)
                pause = min(2 * pause, RETRY[1])
            except Exception:
                self._fault("looking for peers")
                self._closed.wait(TICK)
            else:
                self._wake.wait(TICK)
                self._wake.clear()
                self._closed.wait(0.02)  # many come and go at once

    def _enter(self, session: zenoh.Session) -> None:
        """Declares what this node publishes and answers."""
        self._publisher = session.declare_publisher(
            self.keys.rollouts(self.identity.id),
            # BLOCK would let one slow reader hold up everybody, relays included; who misses something asks for it.
            congestion_control=zenoh.CongestionControl.DROP,
        )
        own = self.keys.offers(self.identity.id)
        self._queryable = session.declare_queryable(own, direct(lambda query: self._questions.put([query])))
        self._asking = Asking(session, self.keys)
        self._ready.set()

    def _tend(self, session: zenoh.Session, asking: Asking) -> None:
        links = len(session.info.links())
        self._note_company(links)
        now = time.monotonic()
        if links and not self._linked:  # also after a break: what was missed is asked for at once
            self._asked.clear()
            self._searched = -LONGEST
        self._linked = bool(links)
        self._catch_up(asking)
        with self._lock:
            missing = self._neighbours.missing
        # Without a link there is nobody to ask, and the region would seem to be empty.
        if missing and links and now - self._searched >= self._pause:
            self._search(asking, missing)
            self._searched = now = time.monotonic()
        with self._lock:
            chosen = self._neighbours.choose(now)
        for id in self._subscribers.keys() - chosen:
            self._subscribers.pop(id).undeclare()
            self._asked.pop(id, None)
            with self._lock:
                self._heard.pop(id, None)
        for id in chosen - self._subscribers.keys():
            with self._lock:
                self._heard[id] = Recent(HEARD, lambda: None)
            self._subscribers[id] = self._subscribe(session, id)
        if links:
            self._ask(asking, now)

    def _search(self, asking: Asking, missing: int) -> None:
        """Finds a region and who has something to give there."""
        region: dict[str, Offer] = {}
        with self._lock:
            apart = {*self._neighbours.chosen, self.identity.id}

        def ask(prefix: str) -> set[str]:
            region.clear()
            region.update((offer.id, offer) for offer in asking.survey(prefix) if offer.id not in apart)
            return set(region)

        prefix = find_region(ask, random_branch(self._random), ENOUGH * missing)
        giving = [id for id, offer in region.items() if offer.recent]
        with self._lock:
            self._neighbours.found(prefix, giving, region, time.monotonic())
            alone = not self._neighbours.known
        self._pause = PAUSE if region else min(2 * self._pause, ALONE if alone else LONGEST)

    def _ask(self, asking: Asking, now: float) -> None:
        """Asks each neighbour now and then what it has."""
        with self._lock:
            waits = {id: AGAIN if place.unanswered else ASK for id, place in self._neighbours.chosen.items()}
            due = [id for id in self._subscribers if now - self._asked.get(id, -ASK) >= waits[id]]
            for id in due:
                self._neighbours.asked(id)
        for id in due:
            self._asked[id] = now
            asking.ask(id)

    def _catch_up(self, asking: Asking) -> None:
        """Takes neighbours' answers, and asks for the rollouts among them that have not come."""
        for offer in asking.offers():
            with self._lock:
                heard = self._heard.get(offer.id)
                if heard is None:
                    continue
                self._neighbours.answered(offer.id)
                missed = [digest for digest in offer.digests if digest not in heard]
            if missed:
                # Of a new neighbour the last ones only.
                missed = missed[-HISTORY:] if len(missed) == len(offer.digests) else missed
                asking.fetch(offer.id, missed, partial(self._arrived, offer.id))

    def _subscribe(self, session: zenoh.Session, id: str) -> zenoh.Subscriber[None]:
        key = self.keys.rollouts(id)
        return session.declare_subscriber(key, direct(lambda sample: self._arrived(id, sample.payload.to_bytes())))

    def _note_company(self, links: int) -> None:
        with self._lock:
            alone = not links or not self._neighbours.known
        if not alone:
            self._alone_since, self._trouble = None, ""
        elif self._alone_since is None:
            self._alone_since = time.time()

    def _note(self, links: int) -> str:
        if self._alone_since is None:
            return ""
        if links:
            reason = "nobody with this secret is heard" if self.keys.secret.private else "no peer is reachable"
        elif self._options.connect:
            reason = self._trouble or f"none of {', '.join(self._options.connect)} answers"
        else:
            reason = "nobody is connected"
        return f"alone: {reason}; training goes on"

    # The sender, and what came.

    def _send(self) -> None:
        while not self._closed.is_set() or (self._ready.is_set() and self._outbox):
            if not self._ready.wait(0.2):
                continue
            for rollout in self._outbox.take(0.2):
                try:
                    data = self.keys.secret.lock(self.keys.rollouts(self.identity.id), self._seal(rollout))
                    self._publisher.put(data)
                    self._shelf.put(data)
                    self._sent.count(len(data))
                except Exception:
                    self._fault("sending a rollout")

    def _answer(self) -> None:
        """Tells whoever asks what this node has, and hands it out again."""
        own = self.keys.offers(self.identity.id)
        while not self._closed.is_set():
            for query in self._questions.take(0.2):
                try:
                    # Who asks a region gets offers only: otherwise one word would bring everybody's rollouts.
                    want = (query.parameters.get("want") or "") if str(query.key_expr) == own else ""
                    for data in self._shelf.answer(want):
                        query.reply(own, data)
                    query.drop()
                except Exception:
                    self._fault("answering a question")

    def _arrived(self, peer: str, data: bytes) -> None:
        """Zenoh's callback: a message under the key expression of `peer`, where anybody may write, or one that was
        asked for."""
        self._came.count(len(data))
        reason, plain = "size", None
        if len(data) <= self._max_bytes:
            with self._lock:
                heard = self._heard.get(peer)
                digest = digest_of(data)
                if heard is None:
                    return
                if digest in heard:
                    self.dropped["replay"] += 1
                    return
                heard[digest]
            reason, plain = "secret", self.keys.secret.unlock(self.keys.rollouts(peer), data)
        if plain is not None:
            self._intake.put(peer, plain)
        else:
            with self._lock:
                self.dropped[reason] += 1

    def _admitted(self, peer: str, scored: Scored) -> None:
        if scored.usable:
            with self._lock:
                self._neighbours.credit(peer)

    def _fault(self, doing: str) -> None:
        """An error of this program's own must not stop the training: it is told once, and counted."""
        if not self._closed.is_set():
            self.faults += 1
            if self.faults == 1:
                logger.exception("%s failed; further such errors are counted only", doing)
