"""Who learned from a contributor's answers: hears nodes' notices, once a relay can be reached.

Nodes say so themselves, and nothing makes them: it is thanks, not proof.
"""

from __future__ import annotations

import dataclasses
import threading
import time
from collections import deque

import msgspec

from shoal.identity.secret import Secret
from shoal.swarm.listener import RetryingListener
from shoal.swarm.notices import Notice
from shoal.swarm.registry import Registry
from shoal.swarm.transport import TransportOptions

LESSONS = 1024
"""That are kept."""


class Learners:
    """Hears what nodes say of the rollouts of the node `maker`. Close it."""

    def __init__(self, options: TransportOptions, swarm: str, secret: Secret, maker: str) -> None:
        self._maker = maker
        self._registry: Registry[bool] = Registry(lambda: True)
        self._lessons: deque[tuple[Notice, int, int]] = deque(maxlen=LESSONS)
        self._lock = threading.Lock()
        self._listener = RetryingListener(heard_through(options), swarm, secret, self._hear)

    def lessons(self) -> list[tuple[Notice, int, int]]:
        """Who learned from `maker` lately, and from which round and slot."""
        with self._lock:
            return list(self._lessons)

    def close(self) -> None:
        self._listener.close()

    def _hear(self, notice: Notice) -> None:
        plain = msgspec.structs.replace(notice, learned=())
        with self._lock:
            if self._registry.hear(notice, time.time()) is not None:
                own = [lesson for lesson in notice.learned if lesson.maker == self._maker]
                self._lessons.extend((plain, lesson.round, lesson.slot) for lesson in own)


def heard_through(options: TransportOptions) -> TransportOptions:
    """How a second session hears the same swarm. It cannot listen on the same address: a contributor that listens and
    connects nowhere is heard through itself."""
    if not options.listen or options.connect:
        return dataclasses.replace(options, listen=(), lan=None if options.connect else options.lan)
    own = tuple(each.replace("0.0.0.0", "127.0.0.1").replace("[::]", "[::1]") for each in options.listen)
    return dataclasses.replace(options, connect=own, listen=(), lan=False)
