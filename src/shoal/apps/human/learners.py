"""Who learned from a contributor's answers: hears nodes' notices, whenever a relay lets it.

Nodes say it themselves, and nothing forces them to: it is thanks, and no proof.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections import deque
from collections.abc import Callable

import msgspec

from shoal.errors import UserError
from shoal.identity.secret import Secret
from shoal.swarm.listener import Listener
from shoal.swarm.notices import Notice
from shoal.swarm.registry import Registry
from shoal.swarm.transport import TransportOptions, Unreachable

logger = logging.getLogger(__name__)
RETRY = 5.0
"""Seconds between attempts to reach a relay."""
LESSONS = 1024
"""That are kept."""


class Learners:
    """A listener that comes when it can, and what was said of rollouts of the node with the name `maker`. Close it."""

    def __init__(self, options: TransportOptions, swarm: str, secret: Secret, maker: str) -> None:
        self._make: Callable[[], Listener] = lambda: Listener(
            heard_through(options), swarm, secret, on_notice=self._hear
        )
        self._listener: Listener | None = None
        self._maker = maker
        self._registry: Registry[list[Notice]] = Registry(list)
        """The last word of each node, without its lessons."""
        self._lessons: deque[tuple[Notice, int, int]] = deque(maxlen=LESSONS)
        self._heard = threading.Lock()
        self._closed = threading.Event()
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._open, name="shoal-learners", daemon=True)
        self._thread.start()

    def notices(self) -> list[Notice]:
        """The last word of each node, without its lessons: those that were heard for longest first."""
        with self._heard:
            return [notice for kept in self._registry.all() for notice in kept]

    def lessons(self) -> list[tuple[Notice, int, int]]:
        """What was learned of late from the node `maker`: who says so, and of which round and slot."""
        with self._heard:
            return list(self._lessons)

    def _hear(self, notice: Notice) -> None:
        plain = msgspec.structs.replace(notice, learned=())
        with self._heard:
            kept = self._registry.hear(notice, time.time())
            if kept is not None:
                kept[:] = [plain]
                own = [lesson for lesson in notice.learned if lesson.maker == self._maker]
                self._lessons.extend((plain, lesson.round, lesson.slot) for lesson in own)

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
