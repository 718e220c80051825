"""Who learned from a contributor's answers: hears nodes' notices, whenever a relay lets it.

Nodes say it themselves, and nothing forces them to: it is thanks, and no proof.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections.abc import Callable

from shoal.errors import UserError
from shoal.swarm.listener import Listener
from shoal.swarm.notices import Notice
from shoal.swarm.secret import Secret
from shoal.swarm.transport import TransportOptions, Unreachable

logger = logging.getLogger(__name__)
RETRY = 5.0
"""Seconds between attempts to reach a relay."""


class Learners:
    """A listener that comes when it can. Close it."""

    def __init__(self, options: TransportOptions, swarm: str, secret: Secret) -> None:
        self._make: Callable[[], Listener] = lambda: Listener(heard_through(options), swarm, secret)
        self._listener: Listener | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._open, name="shoal-learners", daemon=True)
        self._thread.start()

    def notices(self) -> list[Notice]:
        """The last word of each node that spoke of late."""
        return self._listener.latest() if self._listener else []

    def lessons(self, maker: str) -> list[tuple[Notice, int, int]]:
        """What was learned of late from the node of this name: who says so, and of which round and slot."""
        if self._listener is None:
            return []
        return [(notice, lesson.round, lesson.slot) for notice, lesson in self._listener.lessons(maker)]

    def close(self) -> None:
        self._closed.set()
        with self._lock:
            if self._listener is not None:
                self._listener.close()

    def _open(self) -> None:
        while not self._closed.is_set():
            try:
                listener = self._make()
            except Unreachable:
                self._closed.wait(RETRY)
                continue
            except UserError as error:
                logger.warning("nobody's notices can be heard: %s", error)
                return
            with self._lock:
                if self._closed.is_set():
                    listener.close()
                else:
                    self._listener = listener
            return


def heard_through(options: TransportOptions) -> TransportOptions:
    """Where to hear the same swarm with a second session: an address cannot be listened on twice, so that one who
    listens is heard through itself."""
    if not options.listen or options.connect:
        return dataclasses.replace(options, listen=(), lan=None if options.connect else options.lan)
    own = tuple(each.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]") for each in options.listen)
    return dataclasses.replace(options, connect=own, listen=(), lan=False)
