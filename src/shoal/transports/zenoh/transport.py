"""Eclipse Zenoh as a transport: over the network, by relays or within a local one.

    keeper thread: opens the session and tends the subscriptions
    answerer thread: answers peers who ask what this node has
    Zenoh's threads: subscriptions -> context.deliver

A node subscribes to some peers, its neighbours, and asks them for what it missed. Without a relay it is alone, and the
keeper thread tries again.
"""

import contextlib
import threading
import time
from functools import partial
from random import Random
from typing import Any

import zenoh

from shoal.admission.bounded import Newest
from shoal.config.sections import NetworkConfig
from shoal.transports.base import Channel, Presence, Transport, TransportContext, Unreachable
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.neighbours import MOST, START, Neighbours
from shoal.transports.zenoh.offers import OfferedRollouts
from shoal.transports.zenoh.session import limits_of, node_config, open_session, options_of
from shoal.transports.zenoh.subscriptions import Subscriptions, direct, hear_notices

QUESTIONS = 256  # questions of peers that wait for an answer
SHOWN = 60.0  # seconds that it is told why a relay cut the session, once there is another
TICK = 1.0  # seconds between two looks at the subscriptions
RETRY = (0.5, 15.0)  # seconds until the first, and at most between later attempts to reach a relay
CLOSE_TIMEOUT = 2.0  # seconds that `close` waits for each thread
FEW = 64  # nodes whose notices every node hears


class ZenohTransport(Transport):
    """Raises `UserError` for endpoints that cannot be used. It is no error that nobody answers there."""

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        super().__init__(network, context)
        self.options = options_of(network)
        self.keys = Keys(context.swarm, context.secret)
        # A client waits for its relay on the keeper's thread; a peer opens at once, or not at all.
        self._session = None if self.options.mode == "client" else open_session(self.options)
        self._offered = OfferedRollouts(self.keys, context.identity)
        id, start = context.identity.id, context.neighbours or START
        self.subscriptions = Subscriptions(
            self.keys,
            id,
            partial(context.deliver, "rollouts"),
            neighbours=Neighbours(id, Random(), start=start, most=max(MOST, start)),
            dropped=self.dropped,
            clocks=context.clocks,
        )
        self._subscriber: Any = None
        self._trouble = self._limit = ""
        self._cut, self._asked = threading.Event(), 0.0
        self._wake, self._ready, self._closed = threading.Event(), threading.Event(), threading.Event()
        self._questions: Newest[zenoh.Query] = Newest(QUESTIONS)
        self._threads = [
            threading.Thread(target=work, name=f"shoal-{work.__name__.strip('_')}", daemon=True)
            for work in (self._keep, self._answer)
        ]
        for thread in self._threads:
            thread.start()

    @classmethod
    def check(cls, network: NetworkConfig) -> None:
        node_config(options_of(network))

    def wait_open(self, timeout: float) -> bool:
        return self._ready.wait(timeout)

    def publish(self, channel: Channel, data: bytes) -> None:
        if channel == "rollouts":
            self._publisher.put(data)
            self._offered.put(data)
        elif self._session is not None:
            with contextlib.suppress(zenoh.ZError):
                key, drop = self.keys.notices(self.context.identity.id), zenoh.CongestionControl.DROP
                self._session.put(key, data, congestion_control=drop)

    def need(self, live: int, wanted: int) -> None:
        self.subscriptions.need(live, wanted)
        self._wake.set()

    def credit(self, id: str) -> None:
        self.subscriptions.credit(id)

    def presence(self) -> Presence:
        links = len(self._session.info.links()) if self._session else 0
        subscriptions, here = self.subscriptions, self.subscriptions.neighbours
        with subscriptions.lock:
            peers, wanted = len(here.known), here.wanted
            neighbours = sorted(id for id, each in here.chosen.items() if each.there and links)
        if links and peers:
            self._trouble = ""
        trouble = ""
        if not links:
            unanswered = self._trouble or f"none of {', '.join(self.options.connect)} answers"
            trouble = unanswered if self.options.connect else "nobody is connected"
        return Presence(
            peers=peers if links else 0,
            neighbours=tuple(map(self.keys.secret.address, neighbours)),
            links=links,
            trouble=trouble,
            warning=self._limit,
            wanted=wanted,
        )

    def close(self) -> None:
        self._closed.set()
        self._wake.set()
        for thread in self._threads:
            thread.join(CLOSE_TIMEOUT)
        if self._session is not None:
            self._session.close()

    def _keep(self) -> None:
        pause = RETRY[0]
        while not self._closed.is_set():
            try:
                if self._session is None:
                    session = open_session(self.options)  # it may take longer than `close` waits
                    if self._closed.is_set():
                        session.close()
                        return
                    self._session = session
                if not self._ready.is_set():
                    self._declare(self._session)
                if self.options.connect:
                    self._ask_why(self._session)
                self.subscriptions.tend(self._session)
                self._hear_notices(self._session)
            except Unreachable as error:
                self._trouble = str(error)
                self._closed.wait(pause)
                pause = min(2 * pause, RETRY[1])
            except Exception:
                self.fault("looking for peers")
                self._closed.wait(TICK)
            else:
                self._wake.wait(TICK)
                self._wake.clear()
                self._closed.wait(0.02)  # several peers come and go at once

    def _hear_notices(self, session: zenoh.Session) -> None:
        """Hears the notices of all nodes, unless they are many and nobody here wants them."""
        wanted = self.context.hears_notices or len(self.subscriptions.neighbours.known) <= FEW
        if wanted and not self._subscriber:
            self._subscriber = hear_notices(session, self.keys, partial(self.context.deliver, "notices"))
        elif self._subscriber and not wanted:
            self._subscriber.undeclare()
            self._subscriber = None

    def _ask_why(self, session: zenoh.Session) -> None:
        """Asks why the relay cut the session or takes none. Zenoh, which goes on as soon as it can, does not say."""
        now, linked = time.monotonic(), bool(session.info.links())
        if self._cut.is_set() or (not linked and now - self._asked > RETRY[1]):
            self._cut.clear()
            self._limit, self._asked = limits_of(self.options.connect), now
        elif linked and now - self._asked > SHOWN:
            self._limit = ""

    def _declare(self, session: zenoh.Session) -> None:
        """Declares what this node publishes, answers and hears."""
        id = self.context.identity.id
        self._publisher = session.declare_publisher(
            self.keys.rollouts(id),
            # BLOCK would let one slow reader hold up all others, relays included. Who misses something asks for it.
            congestion_control=zenoh.CongestionControl.DROP,
        )
        self._queryable = session.declare_queryable(
            self.keys.offers(id), direct(lambda query: self._questions.put([query]))
        )
        if self.options.connect:
            lost = direct(lambda event: self._cut.set() if event.kind == zenoh.SampleKind.DELETE else None)
            self._events = session.info.declare_transport_events_listener(lost)
        self._ready.set()

    def _answer(self) -> None:
        """Answers peers who ask what this node has, and hands it out again."""
        own = self.keys.offers(self.context.identity.id)
        while not self._closed.is_set():
            for query in self._questions.take(0.2):
                try:
                    # A question to a region gets offers only: otherwise it would bring everybody's rollouts.
                    want = (query.parameters.get("want") or "") if str(query.key_expr) == own else ""
                    for data in self._offered.answer(want):
                        query.reply(own, data)
                    query.drop()
                except Exception:
                    self.fault("answering a question")

    def fault(self, doing: str) -> None:
        if not self._closed.is_set():
            super().fault(doing)
