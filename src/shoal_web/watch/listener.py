"""Listens over Zenoh to the notices of a swarm, without being one of its nodes.

    with Listener(TransportOptions(connect=("tcp/relay.example.org:7447",)), "lagoon", on_notice=print) as listener:
        ...                        # `on_notice` is called with each notice of this swarm that its key has signed
        listener.trouble           # why it hears nothing, or ""

See `swarm` for how to keep what notices say within bounds.
"""

import threading
from collections.abc import Callable
from typing import Final, Self

from shoal.errors import UserError
from shoal.identity.secret import OPEN, Secret
from shoal.membership.notices import NoticeReader
from shoal.transports.base import Unreachable
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.session import TransportOptions, open_session
from shoal.transports.zenoh.subscriptions import hear_notices
from shoal.wire.notices import Notice

RETRY: Final = 5.0  # seconds between attempts to reach a relay


class Listener:
    """A session of its own that hears all notices of a swarm, on a thread that tries until a relay can be reached."""

    def __init__(
        self, options: TransportOptions, swarm: str, secret: Secret = OPEN, *, on_notice: Callable[[Notice], None]
    ) -> None:
        """`on_notice` is called on a thread of the listener."""
        self.trouble = "reaching the swarm"
        self._options, self._keys = options, Keys(swarm, secret)
        self._reader = NoticeReader(swarm, secret, on_notice)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-listener", daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)
        self._reader.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                with open_session(self._options) as session:
                    subscriber = hear_notices(session, self._keys, self._reader.put)  # as long as this name holds it
                    self.trouble = ""
                    self._closed.wait()
                    del subscriber
            except Unreachable as error:
                self.trouble = f"{error}; trying again"
                self._closed.wait(RETRY)
            except UserError as error:
                self.trouble = str(error)
                return
