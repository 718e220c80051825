"""uvicorn's HTTP connection with bounds that uvicorn lacks: how many an address may have, and how slow they may be.

uvicorn has `timeout_keep_alive` (idle after a response), `limit_concurrency` (503 for whoever comes last, so that idle
connections shut honest nodes out) and `h11_max_incomplete_event_size` (bytes of headers). It has no time limit on a
client that sends nothing at all, its headers or its body byte by byte, or that does not read what it is sent: one byte
after a response even stops the keep-alive timer. Here a connection is cut when it has not completed a request's headers
within `PATIENCE` seconds from its start or the last response, or a request and its response take `WHOLE` seconds.
(The body has a limit of its own, in `service`, so that its sender is told.)
"""

from __future__ import annotations

import asyncio
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.judge.doors import Doors, address_of

PATIENCE = 10.0
WHOLE = 30.0
HEADERS = 8192
"""Bytes of a request's headers."""


def guarded(doors: Doors) -> type[H11Protocol]:
    """A class of connections that go through `doors`."""

    class Guarded(H11Protocol):
        address = ""
        _timer: asyncio.TimerHandle | None = None
        _timed: Any = None  # the request that the timer is for

        def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
            peer = transport.get_extra_info("peername")
            address = address_of(str(peer[0])) if peer else ""
            if not doors.enter(address):
                self.transport = transport
                transport.abort()
                return
            self.address = address
            super().connection_made(transport)
            self._wait(PATIENCE)

        def data_received(self, data: bytes) -> None:
            if self.address:  # it may be cut, and be told so late
                super().data_received(data)
                self._watch()

        def on_response_complete(self) -> None:
            self._wait(PATIENCE)
            super().on_response_complete()  # where a request waits in the pipeline, it begins here
            self._watch()

        def connection_lost(self, exc: Exception | None) -> None:
            if not self.address:
                return
            if self._timer is not None:
                self._timer.cancel()
            doors.leave(self.address)
            self.address = ""
            super().connection_lost(exc)

        def _watch(self) -> None:
            if self.cycle is not None and self.cycle is not self._timed and not self.cycle.response_complete:
                self._timed = self.cycle
                self._wait(WHOLE)

        def _wait(self, seconds: float) -> None:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_later(seconds, self._cut)

        def send_400_response(self, msg: str) -> None:
            doors.offend(self.address)
            super().send_400_response(msg)

        def _cut(self) -> None:
            doors.offend(self.address)
            if not self.transport.is_closing():
                self.transport.abort()

    return Guarded
