"""A live swarm as a source: what its nodes say of their rounds, heard over Zenoh without joining.

What is heard is kept while a page is open, bounded whoever speaks. Nothing that a node says decides whether it or
another one is shown: those heard for longest come first.

Time is what a stranger cannot make up. A key that was heard in `PROVEN` spans of time keeps its place while it goes on
sending; of all others the one that was silent for longest makes room, and for how long it has sent is remembered. So a
node gets a place however many fresh keys come between two of its notices.
"""

import hashlib
import heapq
import threading
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Mapping
from contextlib import closing
from typing import Any, Final

from shoal.admission.bounded import Bucket, Recent
from shoal.config.display_name import harmless
from shoal.config.load import make_config
from shoal.config.sections import NetworkConfig
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.secret import OPEN, Secret
from shoal.membership.notices import NoticeReader
from shoal.membership.settings import check_network, secret_of
from shoal.runs.standing import RECENT, recent
from shoal.transports.base import Channel, TransportContext, Unreachable
from shoal.transports.create import create_transport
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.session import TransportOptions, open_session, options_of
from shoal.transports.zenoh.subscriptions import hear_notices
from shoal.wire.notices import Notice
from shoal_web.watch.source import Data, Parameters, Source

RETRY: Final = 5.0  # seconds between attempts to reach a relay
LOOK, WANTED, NOTICES = 2.0, 64, 4096
"""Of a place: seconds between two looks, rollouts whose files are asked for, and notices that are kept."""
PLACES, REMEMBERED = 1000, 16_384  # nodes that are shown, and keys that are remembered
SPAN = 10.0  # seconds; however often a key sends within a span, it was heard once
PROVEN = 3  # spans after which a key keeps its place
SILENT = 3600.0  # seconds of silence after which it may lose it
RATE, BURST = 2.0, 8.0  # notices per second from one key, and at once
MAKERS: Final = 64  # makers that are kept of each node: those it learned from lately
LETTERS: Final = 100  # characters of a maker's name that are kept; a name that is made of a key has fewer
EDGES: Final = 400  # arrows, at most
DRAWN: Final = 50  # nodes with arrows of their own: those heard for longest
ABOUT: Final = (
    "This is the nodes' own word. Nothing proves it, and one person can run many nodes; a judge measures. The nodes "
    "heard for longest come first. Curves and rollouts are in each node's own folder."
)


class Speaker:
    """A key that is heard, and what its node says while it has a place."""

    def __init__(self) -> None:
        self.first = self.time = self._newest = 0.0
        self.spans, self._bucket = 0, Bucket(RATE, BURST, 0.0)
        self.displaced()

    def displaced(self) -> None:
        """Forgets what it said."""
        self.name, self.took = "", 0
        self.last: Data = {}
        """What its last notice says."""
        self.limited: set[str] = set()
        """From whom it says it does not learn for a time."""
        self.rewards: deque[float] = deque(maxlen=RECENT)
        self.passed: tuple[float, ...] = ()
        """The first pass@1 on held-out questions, and the last."""
        self.makers: dict[str, int] = {}
        """How many rollouts of whom it says it learned from, the latest last."""

    def counts(self, notice: Notice, now: float) -> bool:
        """Whether a notice counts. One that is not newer than the last costs its key nothing, since anybody can send it
        again."""
        if notice.time <= self._newest or not self._bucket.take(now):
            return False
        self.spans += not self.spans or self.time // SPAN != now // SPAN
        self.first, self.time, self._newest = self.first or now, now, notice.time
        return True

    def add(self, notice: Notice) -> None:
        self.name = notice.name
        self.last = {"display_name": harmless(notice.display_name), "id": notice.id, "model": notice.model}
        self.last |= {"round": notice.round, "left": notice.left}
        self.limited = {limit.maker[:LETTERS] for limit in notice.limited} - {self.name}
        if notice.reward is not None:
            self.rewards.append(notice.reward)
        if notice.pass_at_1 is not None:
            self.passed = (*self.passed[:1], notice.pass_at_1)
        for maker in [lesson.maker[:LETTERS] for lesson in notice.learned if lesson.maker != self.name]:
            self.took += 1
            self.makers[maker] = self.makers.pop(maker, 0) + 1
            if len(self.makers) > MAKERS:
                del self.makers[next(iter(self.makers))]

    def line(self, now: float, given: int) -> Data:
        """A row of the leaderboard, with the keys that runs have for it."""
        first, last = (self.passed[0], self.passed[-1]) if self.passed else (None, None)
        figures: Data = {"held_out": last, "held_out_first": first, "reward": recent(list(self.rewards))}
        figures |= {"taken": self.took, "given": given}
        return {"name": self.name, **self.last, **figures, "heard": self.time - self.first, "ago": now - self.time}


class Heard:
    """All that was heard. Not thread-safe."""

    def __init__(self) -> None:
        self.notices = 0
        self.last = 0.0
        self._seen: Recent[str, Speaker] = Recent(REMEMBERED, Speaker)
        self._places: OrderedDict[str, Speaker] = OrderedDict()
        """The one heard last at the end."""

    @property
    def more(self) -> int:
        """Nodes that spoke and are not shown, at least."""
        return max(0, len(self._seen) - len(self._places))

    def add(self, notice: Notice, time: float) -> bool:
        """Whether it counts: not if it was said before, or its node speaks too fast."""
        speaker = self._places.get(notice.id) or self._seen[notice.id]
        if not speaker.counts(notice, time):
            return False
        self._places[notice.id] = speaker
        self._places.move_to_end(notice.id)
        speaker.add(notice)
        if len(self._places) > PLACES:
            may = (id for id, one in self._places.items() if one.spans < PROVEN or time - one.time > SILENT)
            self._places.pop(next(may, notice.id)).displaced()
        self.notices += 1
        self.last = time
        return True

    def speakers(self) -> list[Speaker]:
        """Those with a place: who keeps it, then others, the one heard for longest first."""
        return sorted(self._places.values(), key=lambda one: (one.spans < PROVEN, one.first))

    def lines(self, now: float) -> list[Data]:
        """All nodes by their own word."""
        speakers = self.speakers()
        given, limits = Counter[str](), Counter[str]()
        for speaker in speakers:
            given.update(speaker.makers)
            limits.update(speaker.limited)
        return [one.line(now, given[one.name]) | {"limited_by": limits[one.name]} for one in speakers]

    def edges(self) -> Data:
        """Arrows from makers to learners: the heaviest of each of those heard for longest. `share`: of all it took."""
        eldest = self.speakers()[:DRAWN]
        most = EDGES // max(1, len(eldest))
        edges = [
            {"maker": maker, "node": each.name, "peer": True, "rollouts": count, "share": count / each.took}
            for each in eldest
            for maker, count in heapq.nlargest(most, each.makers.items(), key=lambda item: item[1])
        ]
        more = len(self._places) > len(eldest) or any(len(each.makers) > most for each in eldest)
        return {"edges": edges, "more": more}


class SwarmSource(Source):
    """What is heard of a swarm since it was made, by a session of its own, on a thread that tries until a relay can be
    reached. Close it."""

    kind = "swarm"
    live_for = 60.0

    def __init__(self, swarm: str, options: TransportOptions, secret: Secret = OPEN) -> None:
        self.title = f"swarm: {swarm}"
        where = f"swarm {secret.prefix(swarm)} {' '.join(options.connect)}"
        self.id = hashlib.sha256(where.encode()).hexdigest()[:12]
        self._heard = Heard()
        self._lock = threading.Lock()
        self._trouble = "reaching the swarm"
        self._options, self._keys = options, Keys(swarm, secret)
        self._reader = NoticeReader(swarm, secret, self._take)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._listen, name="shoal-listener", daemon=True)
        self._thread.start()

    def changed(self) -> float:
        return self._heard.last

    def summary(self) -> Data:
        with self._lock:
            heard, now = self._heard, time.time()
            return {
                **self.brief(),
                "views": ("progress", "swarm"),
                "about": ABOUT,
                "trouble": self._trouble,
                "nodes": heard.lines(now),
                "more": heard.more,
                "notices": heard.notices,
                "ago": now - heard.last if heard.last else None,
                "metrics": [],
                "swarm": None,
            }

    def graph(self, query: Parameters) -> Data:
        with self._lock:
            return self._heard.edges()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)
        self._reader.close()

    def _listen(self) -> None:
        while not self._closed.is_set():
            try:
                with open_session(self._options) as session:
                    subscriber = hear_notices(session, self._keys, self._reader.put)  # as long as this name holds it
                    self._trouble = ""
                    self._closed.wait()
                    del subscriber
            except Unreachable as error:
                self._trouble = f"{error}; trying again"
                self._closed.wait(RETRY)
            except UserError as error:
                self._trouble = str(error)
                return

    def _take(self, notice: Notice) -> None:
        with self._lock:
            self.version += self._heard.add(notice, time.time())


class PlaceSwarm(SwarmSource):
    """The same of a swarm in a place, which its transport reads, the newest files first: what nodes said lately."""

    def __init__(self, network: NetworkConfig, secret: Secret) -> None:
        self._network, self._secret = network, secret
        self._notices: deque[Notice] = deque(maxlen=NOTICES)
        super().__init__(network.name, TransportOptions(), secret)
        self.id = hashlib.sha256(f"{self.id} {network.connect}".encode()).hexdigest()[:12]

    def _listen(self) -> None:
        me = Identity.generate()  # who publishes nothing
        context = TransportContext(self._network.name, me, self._arrived, self._secret, hears_notices=True)
        try:
            with closing(create_transport(self._network, context)) as transport:
                while not self._closed.wait(LOOK):
                    transport.need(0, WANTED)
                    at = transport.presence()
                    self._trouble = at.warning or ("" if at.links else at.trouble)
                    heard = Heard()
                    for notice in sorted(self._notices.copy(), key=lambda one: one.time):
                        heard.add(notice, notice.time)
                    with self._lock:
                        self.version += heard.notices != self._heard.notices
                        self._heard = heard
        except UserError as error:
            self._trouble = str(error)

    def _take(self, notice: Notice) -> None:
        self._notices.append(notice)

    def _arrived(self, channel: Channel, address: str, data: bytes) -> None:
        if channel == "notices":
            self._reader.put(address, data)


def open_swarm(network: Mapping[str, Any]) -> SwarmSource:
    """The swarm that these settings of `[network]` name. Raises `UserError`."""
    config = make_config({"round": {"nodes": 1}, "network": dict(network)}, "the command line")
    check_network(config)
    if config.network.carrier == "place":
        return PlaceSwarm(config.network, secret_of(config))
    return SwarmSource(config.network.name, options_of(config.network), secret_of(config))
