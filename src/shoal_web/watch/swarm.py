"""A live swarm as a source: what its nodes say of their rounds, heard without joining (`shoal_web.watch.listener`).

What is heard is kept while a page is open, bounded whoever speaks (`shoal_web.registry`). Curves go by time, not by
rounds: this machine knows when a notice came, and the round is a stranger's word. Nothing that a node says decides
whether it or another one is shown: those heard for longest come first.
"""

import hashlib
import heapq
import threading
import time
from array import array
from collections import Counter, deque
from collections.abc import Mapping
from statistics import fmean
from typing import Any, Final

from shoal.config.display_name import harmless
from shoal.config.load import make_config
from shoal.identity.secret import OPEN, Secret
from shoal.membership.settings import check_network, secret_of
from shoal.runs.standing import RECENT, recent
from shoal.transports.zenoh.session import TransportOptions, options_of
from shoal.wire.notices import Notice
from shoal_web.registry import Registry
from shoal_web.watch.listener import Listener
from shoal_web.watch.metrics import Course, binned, points_of, trailing
from shoal_web.watch.source import CurveQuery, Data, GraphQuery, Source

POINTS: Final = 400  # of a curve; with more, two and two become their mean
MAKERS: Final = 64  # makers that are kept of each node: those it learned from lately
LETTERS: Final = 100  # characters of a maker's name that are kept; a name that is made of a key has fewer
EDGES: Final = 400  # arrows, at most
DRAWN: Final = 50  # nodes with a curve and with arrows of their own: those heard for longest
METRICS: Final = {"reward/local": "reward", "eval/pass@1": "pass_at_1"}
"""Figures of a notice, under the names that they have in runs."""
ABOUT: Final = (
    "This is the nodes' own word: each reports its own figures and whom it learned from. Nothing proves it, and one "
    "person can run many nodes; a judge measures. The nodes heard for longest come first. "
    "Curves begin when shoal watch was started. Rollouts are not shown here: a node's folder has its own."
)


class Thinned(Course):
    """A figure as it grows, in at most `POINTS` points, each the mean of equally many values (the last of fewer)."""

    __slots__ = ("count", "each", "first", "recent")

    def __init__(self) -> None:
        super().__init__()
        self.each, self.count = 1, 0
        self.first: list[float] = []
        """The first value, and the last if there are several."""
        self.recent: deque[float] = deque(maxlen=RECENT)

    def add(self, at: float, value: float) -> None:
        self.first = [*self.first[:1], value]
        self.recent.append(value)
        within = self.count % self.each  # of the last point, so far
        if within:
            self.at[-1] += (at - self.at[-1]) / (within + 1)
            self.values[-1] += (value - self.values[-1]) / (within + 1)
        else:
            super().add(at, value)
        self.count += 1
        if len(self.at) >= POINTS and within == self.each - 1:
            for kept in (self.at, self.values):
                kept[:] = array("d", map(fmean, zip(kept[::2], kept[1::2], strict=True)))
            self.each *= 2


class Speaker:
    """A node that is heard."""

    def __init__(self) -> None:
        self.name = ""
        self.last: Data = {}
        """What its last notice says."""
        self.took = 0
        self.first = self.time = 0.0
        self.courses = {metric: Thinned() for metric in METRICS}
        """Figures against minutes."""
        self.makers: dict[str, int] = {}
        """How many rollouts of whom it says it learned from, the latest last."""

    def add(self, notice: Notice, time: float, minute: float) -> None:
        self.first, self.time = self.first if self.name else time, time
        self.name, shown = notice.name, harmless(notice.display_name)
        self.last = {"display_name": shown, "id": notice.id, "model": notice.model, "round": notice.round}
        self.last["left"] = notice.left
        for metric, field in METRICS.items():
            value = getattr(notice, field)
            if value is not None:
                self.courses[metric].add(minute, value)
        for lesson in notice.learned:
            if lesson.maker != self.name:
                self.took += 1
                maker = lesson.maker[:LETTERS]
                self.makers[maker] = self.makers.pop(maker, 0) + 1
                if len(self.makers) > MAKERS:
                    del self.makers[next(iter(self.makers))]

    def line(self, now: float, given: int) -> Data:
        """A row of the leaderboard, with the keys that runs have for it."""
        reward, held_out = (self.courses[metric] for metric in METRICS)
        return {
            "name": self.name,
            **self.last,
            "held_out": held_out.first[-1] if held_out.first else None,
            "held_out_first": held_out.first[0] if held_out.first else None,
            "reward": recent(list(reward.recent)),
            "taken": self.took,
            "given": given,
            "heard": self.time - self.first,
            "ago": now - self.time,
        }


class Heard:
    """All that was heard since `start` (seconds since 1970). Not thread-safe."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.notices = 0
        self.last = 0.0
        self._registry: Registry[Speaker] = Registry(Speaker)

    def __len__(self) -> int:
        return len(self._registry)

    @property
    def more(self) -> int:
        """Nodes that spoke and are not shown, at least."""
        return self._registry.more

    def add(self, notice: Notice, time: float) -> bool:
        """Whether it counts: not if it was said before, or its node speaks too fast."""
        speaker = self._registry.hear(notice, time)
        if speaker is None:
            return False
        speaker.add(notice, time, (time - self.start) / 60)
        self.notices += 1
        self.last = time
        return True

    def lines(self, now: float) -> list[Data]:
        """All nodes by their own word, those heard for longest first."""
        speakers = self._registry.all()
        given = Counter[str]()
        for speaker in speakers:
            given.update(speaker.makers)
        return [speaker.line(now, given[speaker.name]) for speaker in speakers]

    def edges(self) -> Data:
        """Arrows from makers to learners: the heaviest of each of those heard for longest. `share`: of all it took."""
        eldest = self._registry.all()[:DRAWN]
        most = EDGES // max(1, len(eldest))
        edges = [
            {"maker": maker, "node": each.name, "peer": True, "rollouts": count, "share": count / each.took}
            for each in eldest
            for maker, count in heapq.nlargest(most, each.makers.items(), key=lambda item: item[1])
        ]
        more = len(self) > len(eldest) or any(len(each.makers) > most for each in eldest)
        return {"edges": edges, "more": more}

    def curve(self, query: CurveQuery) -> Data:
        """Against minutes since `start`: of each of those heard for longest. Without a mean, which liars would move."""
        width = max((self.last - self.start) / 60 / query.points, 0.05)
        series = [
            {"name": each.name, "points": points_of(*binned(at, trailing(values, smooth), width), 2)}
            for each in self._registry.all()[:DRAWN]
            for course in [each.courses.get(query.metric, Thinned())]
            for at, values in [course.curve()]
            for smooth in [-(-query.smooth // course.each)]
            if len(at) and query.by == "node"
        ]
        return {"against": "minutes", "series": series}


class SwarmSource(Source):
    """What is heard of a swarm since it was made. Close it."""

    kind = "swarm"
    live_for = 60.0

    def __init__(self, swarm: str, options: TransportOptions, secret: Secret = OPEN) -> None:
        self.title = f"swarm: {swarm}"
        where = f"swarm {secret.prefix(swarm)} {' '.join(options.connect)}"
        self.id = hashlib.sha256(where.encode()).hexdigest()[:12]
        self._heard = Heard(time.time())
        self._lock = threading.Lock()
        self._listener = Listener(options, swarm, secret, on_notice=self._take)
        self._trouble = ""

    def look(self) -> None:
        self.version += self._trouble != self._listener.trouble
        self._trouble = self._listener.trouble

    def changed(self) -> float:
        return self._heard.last

    def summary(self) -> Data:
        with self._lock:
            heard, now = self._heard, time.time()
            return {
                **self.brief(),
                "views": ("progress", "swarm"),
                "about": ABOUT,
                "trouble": self._listener.trouble,
                "nodes": heard.lines(now),
                "more": heard.more,
                "notices": heard.notices,
                "ago": now - heard.last if heard.last else None,
                "metrics": sorted(METRICS),
                "swarm": None,
            }

    def curve(self, query: CurveQuery) -> Data:
        with self._lock:
            return self._heard.curve(query)

    def graph(self, query: GraphQuery) -> Data:
        with self._lock:
            return self._heard.edges()

    def close(self) -> None:
        self._listener.close()

    def _take(self, notice: Notice) -> None:
        with self._lock:
            self.version += self._heard.add(notice, time.time())


def open_swarm(network: Mapping[str, Any]) -> SwarmSource:
    """The swarm that these settings of `[network]` name. Raises `UserError`."""
    config = make_config({"round": {"nodes": 1}, "network": dict(network)}, "the command line")
    check_network(config)
    return SwarmSource(config.network.name, options_of(config.network), secret_of(config))
