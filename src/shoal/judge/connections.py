"""uvicorn's HTTP connection with bounds that uvicorn lacks: how many an address may have, and how slow they may be.

uvicorn has `timeout_keep_alive` (idle after a response), `limit_concurrency` (503 for whoever comes last, so that idle
connections shut honest nodes out) and `h11_max_incomplete_event_size` (bytes of headers). It has no time limit on a
client that sends nothing at all, its headers or its body byte by byte, or that does not read what it is sent: one byte
after a response even stops the keep-alive timer. Here a connection is cut when it has not completed a request's headers
within `PATIENCE` seconds from its start or the last response, or a request and its response take `WHOLE` seconds; the
server looks every second. (The body has a limit of its own, in `web`, so that its sender is told.)
"""

from __future__ import annotations

import asyncio
import math
from typing import Any, ClassVar

from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.judge.addresses import Addresses
from shoal.swarm.addresses import address_of

PATIENCE = 10.0
WHOLE = 30.0
HEADERS = 8192
"""Bytes of a request's headers."""


class Connection(H11Protocol):
    """One of those that `addresses` let in."""

    addresses: ClassVar[Addresses]
    address = ""
    deadline = math.inf
    """By the loop's clock."""
    _timed: Any = None  # the request that the deadline is for

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        peer = transport.get_extra_info("peername")
        address = address_of(str(peer[0])) if peer else ""
        if not self.addresses.enter(address):
            self.transport = transport
            transport.abort()
            return
        self.address = address
        super().connection_made(transport)
        self.deadline = self.loop.time() + PATIENCE

    def data_received(self, data: bytes) -> None:
        if self.address:  # it may be cut, and be told so late
            super().data_received(data)
            self._watch()

    def on_response_complete(self) -> None:
        self.deadline = self.loop.time() + PATIENCE
        super().on_response_complete()  # where a request waits in the pipeline, it begins here
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        if self.address:
            self.addresses.leave(self.address)
            self.address = ""
            super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        self.addresses.offend(self.address)
        super().send_400_response(msg)

    def cut_if_late(self, now: float) -> None:
        if now > self.deadline:
            self.addresses.offend(self.address)
            self.transport.abort()  # also where it is being closed, and the other side does not read what is left

    def _watch(self) -> None:
        if self.cycle is not None and self.cycle is not self._timed and not self.cycle.response_complete:
            self._timed = self.cycle
            self.deadline = self.loop.time() + WHOLE


def connections_of(addresses: Addresses) -> type[Connection]:
    """The class of connections that go through `addresses`: uvicorn makes them itself."""
    return type("Connection", (Connection,), {"addresses": addresses})
