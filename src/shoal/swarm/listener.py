"""Hears what nodes say of their rounds (`notices`), without being one of them.

    with Listener(TransportOptions(connect=("tcp/relay.example.org:7447",)), "reef") as listener:
        listener.latest()      # the last notice of each node that spoke of late
        listener.lessons("brave-otter-3f2a")    # who learned what from it

Everything is bounded, whoever speaks: nodes, notices waiting, lessons kept. One that speaks too fast is not heard.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Any, Final, Self

import zenoh

from shoal.swarm.limits import Bucket, Recent
from shoal.swarm.neighbours import Keys
from shoal.swarm.notices import MAX_BYTES, Lesson, Notice, open_notice
from shoal.swarm.queues import Newest
from shoal.swarm.secret import OPEN, OVERHEAD, Secret
from shoal.swarm.transport import TransportOptions, open_session

NODES: Final = 16_384
"""Nodes whose last notices are kept."""
MAKERS: Final = 1024
"""Makers of whose rollouts lessons are kept, those asked for first."""
LESSONS: Final = 256
"""Lessons kept of each."""
RATE, BURST = 2.0, 8.0
"""Notices in a second of one key, and at once."""
WAITING: Final = 4096


class Listener:
    """A place from which a swarm is watched. Raises as `open_session` does."""

    def __init__(self, options: TransportOptions, swarm: str, secret: Secret = OPEN) -> None:
        self.keys = Keys(swarm, secret)
        self.refused = 0
        """Messages that were no notices of this swarm, or came too fast."""
        self._latest: dict[str, Notice] = {}
        self._taught: Recent[str, deque[tuple[Notice, Lesson]]] = Recent(MAKERS, lambda: deque(maxlen=LESSONS))
        self._rates: Recent[str, Bucket] = Recent(NODES, lambda: Bucket(RATE, BURST, time.monotonic()))
        self._inbox: Newest[tuple[str, bytes]] = Newest(WAITING)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._session = open_session(options)
        self._subscriber = self._session.declare_subscriber(self.keys.all_notices, self._arrived)
        self._thread = threading.Thread(target=self._read, name="shoal-listener", daemon=True)
        self._thread.start()

    def latest(self) -> list[Notice]:
        """The last notice of each node, the newest first."""
        with self._lock:
            return sorted(self._latest.values(), key=lambda notice: -notice.time)

    def lessons(self, maker: str) -> list[tuple[Notice, Lesson]]:
        """What was learned of late from rollouts of the node of this name: who says so, and of which rollout."""
        with self._lock:
            return list(self._taught[maker])

    def close(self) -> None:
        self._closed.set()
        self._session.close()
        self._thread.join(2.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _arrived(self, sample: Any) -> None:
        """Zenoh's callback: checks cost time, and are made elsewhere."""
        if sample.kind == zenoh.SampleKind.PUT and len(sample.payload) <= MAX_BYTES + OVERHEAD:
            self._inbox.put([(str(sample.key_expr), sample.payload.to_bytes())])

    def _read(self) -> None:
        while not self._closed.is_set():
            for key, data in self._inbox.take(0.2):
                plain = self.keys.secret.unlock(key, data)
                notice = plain and open_notice(plain, self.keys.swarm, self.keys.secret.context)
                with self._lock:
                    if not notice or not self._rates[notice.id].take(time.monotonic()):
                        self.refused += 1
                        continue
                    self._keep(notice)

    def _keep(self, notice: Notice) -> None:
        before = self._latest.pop(notice.id, None)
        if before is not None and before.round >= notice.round and before.time >= notice.time:
            self._latest[notice.id] = before  # said before, or out of order
            return
        self._latest[notice.id] = notice
        if len(self._latest) > NODES:
            del self._latest[next(iter(self._latest))]
        for lesson in notice.learned:
            self._taught[lesson.maker].append((notice, lesson))
