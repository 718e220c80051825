"""Hears what nodes say of their rounds (`notices`), without being one of them.

    with Listener(TransportOptions(connect=("tcp/relay.example.org:7447",)), "reef", hear=print):
        ...      # `hear` is called with each notice that is one of this swarm and signed by its key

Nothing is kept here but what waits to be read, at most `WAITING` notices. Whoever hears keeps what it wants, within
bounds of its own: `places` says how.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Self

import zenoh

from shoal.identity.secret import OPEN, OVERHEAD, Secret
from shoal.swarm.neighbours import Keys
from shoal.swarm.notices import MAX_BYTES, Notice, open_notice
from shoal.swarm.queues import Newest
from shoal.swarm.transport import TransportOptions, open_session

WAITING: Final = 512


class Listener:
    """A place from which a swarm is watched. Raises as `open_session` does."""

    def __init__(
        self, options: TransportOptions, swarm: str, secret: Secret = OPEN, *, hear: Callable[[Notice], None]
    ) -> None:
        """`hear` is called on a thread of the listener."""
        self.keys = Keys(swarm, secret)
        self._hear = hear
        self._inbox: Newest[tuple[str, bytes]] = Newest(WAITING)
        self._closed = threading.Event()
        self._session = open_session(options)
        self._subscriber = self._session.declare_subscriber(self.keys.all_notices, self._arrived)
        self._thread = threading.Thread(target=self._read, name="shoal-listener", daemon=True)
        self._thread.start()

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
                if notice:
                    self._hear(notice)
