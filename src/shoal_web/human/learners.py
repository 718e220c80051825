"""Who learned from a contributor's answers, by nodes' notices.

Nodes say so themselves, and nothing makes them: it is thanks, not proof.
"""

from __future__ import annotations

import threading
import time
from collections import deque

import msgspec

from shoal.wire.notices import Notice
from shoal_web.registry import Registry

LESSONS = 1024
"""That are kept."""


class Learners:
    """Keeps what nodes say of the rollouts of the node `maker`."""

    def __init__(self, maker: str) -> None:
        self._maker = maker
        self._registry: Registry[bool] = Registry(lambda: True)
        self._lessons: deque[tuple[Notice, int, int]] = deque(maxlen=LESSONS)
        self._lock = threading.Lock()

    def lessons(self) -> list[tuple[Notice, int, int]]:
        """Who learned from `maker` lately, and from which round and slot."""
        with self._lock:
            return list(self._lessons)

    def hear(self, notice: Notice) -> None:
        """Takes a notice of any node."""
        plain = msgspec.structs.replace(notice, learned=())
        with self._lock:
            if self._registry.hear(notice, time.time()) is not None:
                own = [lesson for lesson in notice.learned if lesson.maker == self._maker]
                self._lessons.extend((plain, lesson.round, lesson.slot) for lesson in own)
