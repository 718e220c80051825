"""A live swarm as a source: what its nodes say of their rounds, heard without joining (`shoal.membership.listener`)."""

from __future__ import annotations

import hashlib
import threading
import time
from collections.abc import Mapping
from typing import Any, Final

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.identity.secret import OPEN, Secret
from shoal.membership.listener import RetryingListener
from shoal.membership.settings import check_network, secret_of
from shoal.transports.zenoh.session import TransportOptions, options_of
from shoal.wire.notices import Notice
from shoal_web.watch.heard import METRICS, Heard, medians
from shoal_web.watch.source import CurveQuery, Data, GraphQuery, Source, TaskQuery

ABOUT: Final = (
    "This is the nodes' own word: each reports its own figures and whom it learned from. Nothing proves it, and one "
    "person can run many nodes; a judge measures. The nodes heard for longest come first, and medians are theirs. "
    "Curves begin when shoal watch was started. Rollouts are not shown here: a node's folder has its own."
)


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
        self._listener = RetryingListener(options, swarm, secret, self._take)
        self._trouble = ""

    def look(self) -> None:
        self.version += self._trouble != self._listener.trouble
        self._trouble = self._listener.trouble

    def changed(self) -> float:
        return self._heard.last

    def summary(self) -> Data:
        with self._lock:
            heard, now = self._heard, time.time()
            lines = heard.lines(now)
            return {
                **self.brief(),
                "views": ("progress", "swarm"),
                "about": ABOUT,
                "trouble": self._listener.trouble,
                "nodes": lines,
                "more": heard.more,
                "median": medians(lines),
                "notices": heard.notices,
                "ago": now - heard.last if heard.last else None,
                "metrics": sorted(METRICS),
                "gradient": [],
                "swarm": None,
                "attack": None,
            }

    def curve(self, query: CurveQuery) -> Data:
        with self._lock:
            return self._heard.curve(query)

    def tasks(self, query: TaskQuery) -> Data:
        """None: notices have no figures by task."""
        return {"series": []}

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
    if config.network.transport != "zenoh":
        raise UserError(f"a swarm is watched over zenoh; this one has the transport {config.network.transport}")
    check_network(config)
    return SwarmSource(config.network.name, options_of(config.network), secret_of(config))
