"""A node's link to a networked swarm, on Eclipse Zenoh.

    link = NetworkLink(TransportOptions(connect=("relay.example.org:7447",)), "lagoon", identity, seal, admission)
    link.share(rollouts)         # returns at once: a thread signs and sends
    link.receive()               # returns at once: what another thread has admitted since the last call
    link.need(live, wanted)      # once a round: more neighbours if the pool runs dry
    link.close()

    share() -> outbox -> sender thread: seal, put -> Zenoh
    Zenoh -> subscriptions -> intake: admit -> receive()
    keeper thread: opens the session and tends the subscriptions
    answerer thread: answers peers who ask what this node has

All queues are bounded and lose their oldest items, which are counted: training never waits for the network, nor the
network for training. Without a link a node trains alone, and it shares as soon as the link comes.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import zenoh

from shoal.admission.admission import Admission
from shoal.admission.intake import Intake
from shoal.admission.queues import Newest
from shoal.identity.keys import Identity, name_of
from shoal.identity.secret import OPEN, Secret
from shoal.rollout import Rollout, Scored
from shoal.transports.meter import Meter
from shoal.transports.zenoh.key_expressions import Keys, shard_of
from shoal.transports.zenoh.listener import NoticeReader
from shoal.transports.zenoh.neighbours import Neighbours
from shoal.transports.zenoh.offers import OfferedRollouts
from shoal.transports.zenoh.queries import direct
from shoal.transports.zenoh.session import TransportOptions, Unreachable, open_session
from shoal.transports.zenoh.subscriptions import Subscriptions
from shoal.wire.notices import Notice

logger = logging.getLogger(__name__)

OUTBOX = 256  # own rollouts that wait for a link
QUESTIONS = 256  # questions of peers that wait for an answer
TICK = 1.0  # seconds between two looks at the subscriptions
RETRY = (0.5, 15.0)  # seconds until the first, and at most between later attempts to reach a relay
COPY_NOTED = 120.0  # seconds for which another node with the same key is reported
COPY = "another node has this node's identity, so the two never hear each other: give one its own SHOAL_HOME"
CLOSE_TIMEOUT = 2.0  # seconds that `close` waits for each thread


class NetworkLink:
    """One node's end of a networked swarm. It is a `Swarm`; in addition it has `need`, `tell`, `status` and `close`.

    Raises `UserError` for endpoints that cannot be used. It is no error that nobody answers there.
    """

    def __init__(
        self,
        options: TransportOptions,
        swarm: str,
        identity: Identity,
        seal: Callable[[Rollout], bytes],
        admission: Admission,
        *,
        secret: Secret = OPEN,
        max_bytes: int = 262_144,
        neighbours: Neighbours | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        waits: bool = False,
    ) -> None:
        """`seal` makes the signed bytes of an own rollout, on a thread of the link. `secret`: of a private swarm.
        Messages of more than `max_bytes` are dropped unread. `on_notice`: hears the notices of all nodes, on a thread
        of the link. `waits`: no message is admitted until `start` is called."""
        self.keys = Keys(swarm, secret)
        self.identity = identity
        self.faults = 0
        """Errors of this program itself in the threads of the link."""
        # A client waits for its relay on the keeper's thread; a peer opens at once, or not at all.
        self._session = None if options.mode == "client" else open_session(options)
        self._options = options
        self._seal = seal
        self._admission = admission
        self._outbox: Newest[Rollout] = Newest(OUTBOX)
        self._offered = OfferedRollouts(self.keys, identity)
        self._intake = Intake(admission, self._admitted, waits)
        self.subscriptions = Subscriptions(
            self.keys,
            identity.id,
            self._intake.put,
            max_bytes=max_bytes,
            is_own=self._offered.has_signed,
            neighbours=neighbours,
        )
        self._notices = NoticeReader(self.keys, on_notice) if on_notice else None
        self._sent = Meter()
        self._trouble = ""
        self._alone_since: float | None = time.time()
        self._wake = threading.Event()
        self._ready = threading.Event()
        self._closed = threading.Event()
        self._questions: Newest[zenoh.Query] = Newest(QUESTIONS)
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
    def dropped(self) -> Counter[str]:
        """Messages that did not even reach the admission, by reason: `size`, `repeated`, `secret`."""
        return self.subscriptions.dropped

    @property
    def refused(self) -> int:
        return sum(self._admission.refused.values()) + self.dropped.total() + self._intake.lost

    def start(self) -> None:
        """The admission knows this node's own model and tasks now: what came in is examined."""
        self._intake.start()

    def share(self, rollouts: Sequence[Rollout]) -> None:
        self._outbox.put(rollouts)

    def tell(self, notice: bytes) -> None:
        """Publishes a notice for people who watch, if there is a link."""
        if self._session is not None and self._ready.is_set() and not self._closed.is_set():
            with contextlib.suppress(zenoh.ZError):
                key, drop = self.keys.notices(self.identity.id), zenoh.CongestionControl.DROP
                self._session.put(key, self.keys.secret.lock(key, notice), congestion_control=drop)

    def receive(self) -> list[Scored]:
        return self._intake.take()

    def need(self, live: int, wanted: int) -> None:
        """Call this once a round: the pool has `live` rollouts with a gradient, and an update can use `wanted` (J)."""
        self.subscriptions.need(live, wanted)
        self._wake.set()

    def save(self, folder: Path) -> None:
        self._admission.save(folder)

    def load(self, folder: Path) -> None:
        self._intake.load(folder)

    def status(self) -> dict[str, Any]:
        """The state of the link as plain data. Times are seconds since 1970."""
        links = len(self._session.info.links()) if self._session else 0
        self._update_alone(links)
        subscriptions, here = self.subscriptions, self.subscriptions.neighbours
        with subscriptions.lock:
            peers, wanted, region = len(here.known), here.wanted, here.prefix
            neighbours = sorted(id for id, each in here.chosen.items() if each.there and links)
        return {
            "swarm": self.keys.swarm,
            "private": self.keys.secret.private,
            "id": self.identity.id,
            "name": self.identity.name,
            "shard": shard_of(self.keys.secret.address(self.identity.id)),
            "region": region,
            "peers": peers if links else 0,
            "neighbours": [{"id": id, "name": name_of(bytes.fromhex(id))} for id in neighbours],
            "wanted": wanted,
            "links": links,
            "silo": self._alone_since is not None,
            "silo_since": self._alone_since,
            "note": self._note(links),
            "copy_seen": self.subscriptions.copy_seen,
            "sent": {**self._sent.status(), "overflow": self._outbox.lost},
            "received": {**subscriptions.received.status(), "overflow": self._intake.lost},
            "dropped": dict(self.dropped),
            "faults": self.faults + self._intake.faults,
        }

    def close(self) -> None:
        """Sends what waits, for up to two seconds, and leaves."""
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT)
        if self._session is not None:
            self._session.close()
        if self._notices:
            self._notices.close()
        self._intake.close()

    def _keep(self) -> None:
        pause = RETRY[0]
        while not self._closed.is_set():
            try:
                if self._session is None:
                    session = open_session(self._options)  # it may take longer than `close` waits
                    if self._closed.is_set():
                        session.close()
                        return
                    self._session = session
                if not self._ready.is_set():
                    self._declare(self._session)
                self._update_alone(len(self._session.info.links()))
                self.subscriptions.tend(self._session)
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
                self._closed.wait(0.02)  # several peers come and go at once

    def _declare(self, session: zenoh.Session) -> None:
        """Declares what this node publishes and answers."""
        self._publisher = session.declare_publisher(
            self.keys.rollouts(self.identity.id),
            # BLOCK would let one slow reader hold up all others, relays included. Who misses something asks for it.
            congestion_control=zenoh.CongestionControl.DROP,
        )
        own = self.keys.offers(self.identity.id)
        self._queryable = session.declare_queryable(own, direct(lambda query: self._questions.put([query])))
        if self._notices:
            self._subscriber = self._notices.subscribe(session)
        self._ready.set()

    def _update_alone(self, links: int) -> None:
        """Notes since when this node is alone."""
        if links and self.subscriptions.known:
            self._alone_since, self._trouble = None, ""
        elif self._alone_since is None:
            self._alone_since = time.time()

    def _note(self, links: int) -> str:
        seen = self.subscriptions.copy_seen
        if seen is not None and time.time() - seen < COPY_NOTED:
            return COPY
        if self._alone_since is None:
            return ""
        if links:
            private = self.keys.secret.private
            reason = "nobody with this secret is heard" if private else "nobody else is in this swarm yet"
        elif self._options.connect:
            reason = self._trouble or f"none of {', '.join(self._options.connect)} answers"
        else:
            reason = "nobody is connected"
        return f"alone: {reason}; training goes on"

    def _send(self) -> None:
        while not self._closed.is_set() or (self._ready.is_set() and self._outbox):
            if not self._ready.wait(0.2):
                continue
            for rollout in self._outbox.take(0.2):
                try:
                    data = self.keys.secret.lock(self.keys.rollouts(self.identity.id), self._seal(rollout))
                    self._publisher.put(data)
                    self._offered.put(data)
                    self._sent.count(len(data))
                except Exception:
                    self._fault("sending a rollout")

    def _answer(self) -> None:
        """Answers peers who ask what this node has, and hands it out again."""
        own = self.keys.offers(self.identity.id)
        while not self._closed.is_set():
            for query in self._questions.take(0.2):
                try:
                    # A question to a region gets offers only: otherwise it would bring everybody's rollouts.
                    want = (query.parameters.get("want") or "") if str(query.key_expr) == own else ""
                    for data in self._offered.answer(want):
                        query.reply(own, data)
                    query.drop()
                except Exception:
                    self._fault("answering a question")

    def _admitted(self, peer: str, scored: Scored) -> None:
        if scored.may_teach:
            self.subscriptions.credit(peer)

    def _fault(self, doing: str) -> None:
        """An error of this program must not stop the training: the first one is logged, and all are counted."""
        if not self._closed.is_set():
            self.faults += 1
            if self.faults == 1:
                logger.exception("%s failed; further such errors are counted only", doing)
