"""A node's place in a networked swarm, on Eclipse Zenoh.

    link = NetworkLink(TransportOptions(connect=("relay.example.org:7447",)), "reef", identity, seal, admission)
    link.share(rollouts)         # at once: a thread of its own signs and sends
    link.receive()               # at once: what another thread has admitted since the last call
    link.need(live, wanted)      # once a round: more neighbours if the pool runs dry
    link.close()

    share() -> outbox -> sender: seal, put -> Zenoh
    Zenoh -> intake: admit -> receive()
    keeper: opens the session, looks for peers, subscribes to some of them

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
from pathlib import Path
from random import Random
from typing import Any, Protocol

import zenoh
from zenoh import ext

from shoal.rollout import Rollout, Scored
from shoal.swarm.identity import name_of
from shoal.swarm.intake import Admitting, Intake
from shoal.swarm.neighbours import (
    CROWD,
    ENOUGH,
    MOST,
    Keys,
    Neighbours,
    find_region,
    peer_of,
    random_branch,
    shard_of,
    tag_of,
)
from shoal.swarm.queues import Meter, Newest
from shoal.swarm.transport import TransportOptions, Unreachable, open_session

logger = logging.getLogger(__name__)

OUTBOX = 256
"""Own rollouts that wait for a link."""
CACHE = 64
"""Own rollouts kept for those who join late or missed some."""
HISTORY = 16
"""Rollouts that a new neighbour is asked for."""
HEARTBEAT = 2.0
"""Seconds between two words of how many there are, so that others notice that they missed the last."""
TICK = 1.0
"""Seconds between two looks at neighbours and region, if nothing happens."""
PAUSE = 10.0
"""Seconds between two searches for a region, at least."""
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


class NetworkLink:
    """One node's end of a networked swarm: a `Swarm`, and `need`, `status`, `other_tags` and `close`.

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
        tag: str = "open",
        max_bytes: int = 262_144,
        neighbours: Neighbours | None = None,
    ) -> None:
        """`seal` makes the signed bytes of an own rollout, on a thread of the link. `tag` sets a private swarm apart
        from others of its name. Messages of more than `max_bytes` are not looked at."""
        self.keys = Keys(swarm, tag)
        self.identity = identity
        self.dropped: Counter[str] = Counter()
        """Messages that were not even given to the admission, by reason: `size`."""
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
        self._subscribers: dict[str, ext.AdvancedSubscriber[None]] = {}
        self._presence: zenoh.Subscriber[None] | None = None
        self._searched = -PAUSE
        # A client waits for its relay on the keeper's thread; a peer opens at once, or not at all.
        self._session = None if options.mode == "client" else open_session(options)
        self._threads = [
            threading.Thread(target=work, name=f"shoal-{work.__name__.strip('_')}", daemon=True)
            for work in (self._keep, self._send)
        ]
        for thread in self._threads:
            thread.start()

    @property
    def series(self) -> tuple[str | int, ...]:
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
                drop = zenoh.CongestionControl.DROP
                self._session.put(self.keys.notices(self.identity.id), notice, congestion_control=drop)

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
            present, wanted, region = len(self._neighbours.present), self._neighbours.wanted, self._neighbours.prefix
            neighbours = sorted(self._neighbours.chosen.keys() & self._neighbours.present)
        return {
            "swarm": self.keys.swarm,
            "tag": self.keys.tag,
            "id": self.identity.id,
            "name": self.identity.name,
            "mode": self._options.mode,
            "shard": shard_of(self.identity.id),
            "region": region,
            "peers": present,
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

    def other_tags(self, timeout: float = 2.0) -> set[str]:
        """Tags, other than the own, that nodes of this swarm's name have: their secret is another. Waits for up to
        `timeout` seconds and looks at 256 nodes at most."""
        if self._session is None or self._session.is_closed():
            return set()
        return {tag_of(key) for key in _tokens(self._session, self.keys.all_tags, 256, timeout)} - {self.keys.tag}

    def close(self) -> None:
        """Sends what waits, for up to two seconds, and leaves."""
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(FAREWELL)
        if self._session is not None:
            self._session.close()
        self._intake.close()

    # The keeper: the session, presence and whom to listen to.

    def _keep(self) -> None:
        pause = RETRY[0]
        while not self._closed.is_set():
            try:
                if self._session is None:
                    self._session = open_session(self._options)
                if not self._ready.is_set():
                    self._enter(self._session)
                self._tend(self._session)
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
        """Declares what this node publishes, and then that it is there."""
        self._publisher = ext.declare_advanced_publisher(
            session,
            self.keys.rollouts(self.identity.id),
            # BLOCK would let one slow reader hold up everybody, relays included; what is dropped is recovered.
            congestion_control=zenoh.CongestionControl.DROP,
            cache=ext.CacheConfig(
                CACHE, replies_config=ext.RepliesConfig(congestion_control=zenoh.CongestionControl.DROP)
            ),
            # Not the sporadic one: Zenoh sends it with BLOCK, and one stopped reader then stalls all for five seconds.
            sample_miss_detection=ext.MissDetectionConfig(heartbeat=HEARTBEAT, sporadic_heartbeat=None),
            publisher_detection=True,
        )
        self._token = session.liveliness().declare_token(self.keys.presence(self.identity.id))
        self._ready.set()

    def _tend(self, session: zenoh.Session) -> None:
        links = len(session.info.links())
        self._note_company(links)
        now = time.monotonic()
        with self._lock:
            search = self._presence is None or self._neighbours.stale
        # Without a link there is nobody to ask, and the region would seem to be empty.
        if search and links and now - self._searched >= PAUSE:
            self._searched = now
            self._search(session)
        with self._lock:
            chosen = self._neighbours.choose(now)
        for id in self._subscribers.keys() - chosen:
            self._subscribers.pop(id).undeclare()
        for id in chosen - self._subscribers.keys():
            self._subscribers[id] = self._subscribe(session, id)

    def _search(self, session: zenoh.Session) -> None:
        """Finds a region, and is told from then on who comes and goes there."""

        def ask(prefix: str) -> set[str]:
            keys = _tokens(session, self.keys.region(prefix), CROWD * MOST, timeout=5.0)
            return {id for id in map(peer_of, keys) if id} - {self.identity.id}

        prefix, peers = find_region(ask, random_branch(self._random), ENOUGH * self._neighbours.wanted)
        with self._lock:
            self._neighbours.enter(prefix, peers)
        old, region = self._presence, self.keys.region(prefix)
        self._presence = session.liveliness().declare_subscriber(region, self._seen, history=True)
        if old is not None:
            old.undeclare()

    def _seen(self, sample: zenoh.Sample) -> None:
        """Zenoh's callback: somebody came or left."""
        id = peer_of(str(sample.key_expr))
        if id is None:
            return
        with self._lock:
            if sample.kind == zenoh.SampleKind.PUT:
                self._neighbours.came(id)
            else:
                self._neighbours.left(id)
        self._wake.set()

    def _subscribe(self, session: zenoh.Session, id: str) -> ext.AdvancedSubscriber[None]:
        return ext.declare_advanced_subscriber(
            session,
            self.keys.rollouts(id),
            lambda sample: self._arrived(id, sample),
            history=ext.HistoryConfig(detect_late_publishers=True, max_samples=HISTORY),
            recovery=ext.RecoveryConfig(periodic_queries=None, heartbeat=True),
        )

    def _note_company(self, links: int) -> None:
        with self._lock:
            alone = not links or not self._neighbours.present
        if not alone:
            self._alone_since, self._trouble = None, ""
        elif self._alone_since is None:
            self._alone_since = time.time()

    def _note(self, links: int) -> str:
        if self._alone_since is None:
            return ""
        if links:
            reason = "no peer is reachable"
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
                    data = self._seal(rollout)
                    self._publisher.put(data)
                    self._sent.count(len(data))
                except Exception:
                    self._fault("sending a rollout")

    def _arrived(self, peer: str, sample: zenoh.Sample) -> None:
        """Zenoh's callback: a message under the key expression of `peer`, where anybody may write."""
        size = len(sample.payload)
        self._came.count(size)
        if size > self._max_bytes:
            with self._lock:
                self.dropped["size"] += 1
            return
        self._intake.put(peer, sample.payload.to_bytes())

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


def _tokens(session: zenoh.Session, key: str, limit: int, timeout: float) -> set[str]:
    """The keys of up to `limit` liveliness tokens that match `key`."""
    cancel = zenoh.CancellationToken()
    keys: set[str] = set()
    for reply in session.liveliness().get(key, timeout=timeout, cancellation_token=cancel):
        if reply.ok is not None:
            keys.add(str(reply.ok.key_expr))
        if len(keys) >= limit:
            break
    cancel.cancel()
    return keys
