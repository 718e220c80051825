"""Listens to the notices of a swarm (`notices`) without being one of its nodes.

    with Listener(TransportOptions(connect=("tcp/relay.example.org:7447",)), "lagoon", on_notice=print):
        ...      # `on_notice` is called with each notice of this swarm that its key has signed

The listener keeps nothing but the last `WAITING` messages that were not read yet. See `registry` for how to keep what
notices say within bounds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any, Final, Self

import zenoh

from shoal.admission.queues import Newest
from shoal.errors import UserError
from shoal.identity.secret import OPEN, OVERHEAD, Secret
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.queries import direct
from shoal.transports.zenoh.session import TransportOptions, Unreachable, open_session
from shoal.wire.notices import MAX_BYTES, Notice, open_notice

WAITING: Final = 512
RETRY: Final = 5.0
"""Seconds between attempts to reach a relay."""


class NoticeReader:
    """Checks the notices that come to one subscription, on a thread of its own. Close it."""

    def __init__(self, keys: Keys, on_notice: Callable[[Notice], None]) -> None:
        """`on_notice` is called on that thread."""
        self._keys, self._on_notice = keys, on_notice
        self._inbox: Newest[tuple[str, bytes]] = Newest(WAITING)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._read, name="shoal-notices", daemon=True)
        self._thread.start()

    def subscribe(self, session: zenoh.Session) -> zenoh.Subscriber[None]:
        """Hears all notices of the swarm from now on."""
        return session.declare_subscriber(self._keys.all_notices, direct(self._arrived))

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)

    def _arrived(self, sample: Any) -> None:
        """Zenoh's callback. It must be quick, so another thread checks the message."""
        if sample.kind == zenoh.SampleKind.PUT and len(sample.payload) <= MAX_BYTES + OVERHEAD:
            self._inbox.put([(str(sample.key_expr), sample.payload.to_bytes())])

    def _read(self) -> None:
        while not self._closed.is_set():
            for key, data in self._inbox.take(0.2):
                plain = self._keys.secret.unlock(key, data)
                notice = plain and open_notice(plain, self._keys.swarm, time.time(), self._keys.secret.context)
                if notice:
                    self._on_notice(notice)


class Listener:
    """A session of its own that hears all notices of a swarm. Raises as `open_session` does."""

    def __init__(
        self, options: TransportOptions, swarm: str, secret: Secret = OPEN, *, on_notice: Callable[[Notice], None]
    ) -> None:
        """`on_notice` is called on a thread of the listener."""
        self.keys = Keys(swarm, secret)
        self._session = open_session(options)
        self._reader = NoticeReader(self.keys, on_notice)
        self._subscriber = self._reader.subscribe(self._session)

    def close(self) -> None:
        self._session.close()
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class RetryingListener:
    """A `Listener` on a thread of its own, which tries again until a relay can be reached. Close it."""

    def __init__(self, options: TransportOptions, swarm: str, secret: Secret, hear: Callable[[Notice], None]) -> None:
        self.trouble = "reaching the swarm"
        """Why it hears nothing, or ""."""
        self._listen = lambda: Listener(options, swarm, secret, on_notice=hear)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-retrying-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with self._listen():
                    self.trouble = ""
                    self._closed.wait()
            except Unreachable as error:
                self.trouble = f"{error}; trying again"
                self._closed.wait(RETRY)
            except UserError as error:
                self.trouble = str(error)
                return
