"""uvicorn's HTTP connections, with a quota and time limits.

    connections = Connections(256)
    Server(connections.config(app)).run(sockets=[bound])
    proven(request.scope)      # in the application: this client may be here

uvicorn bounds only the size of headers and the idle time after a response. Its `limit_concurrency` answers 503 to
whoever comes last, so that silent connections shut everybody out. Here a `Quota` decides who stays, and a connection is
cut when

- no request's headers are complete within `PATIENCE` seconds of its start or of the last response, or
- its client reads less than `PROGRESS` bytes of an answer within `STALL` seconds, or
- it has had one response without showing that its client may be here (`proven`).

A request's body has limits of its own (`bodies`), whose errors its sender can read. Each connection wraps uvicorn's own
protocol; the application tells it when a request begins and ends (`scope["state"]`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final

import uvicorn
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.h11_impl import H11Protocol

from shoal.admission.addresses import address_of
from shoal_web.serving.quota import Quota
from shoal_web.serving.server import ACCEPTED

PATIENCE: Final = 10.0
STALL: Final = 30.0
PROGRESS: Final = 32_768
EVERY: Final = 1.0
"""Seconds between two checks for slow clients."""
STATE: Final = "shoal-connection"


class Connections:
    """All connections of a server. For its event loop."""

    def __init__(
        self,
        most: int,
        each: int | None = None,
        may_enter: Callable[[str], bool] = lambda address: True,
        offend: Callable[[str], object] = lambda address: None,
    ) -> None:
        """`most`: connections of all addresses. `each`: of one. `may_enter`: whether an address may connect.
        `offend`: called with the address of a client whose request was too slow, or was not HTTP."""
        self.quota: Quota[Connection] = Quota(most, each)
        self.may_enter, self.offend = may_enter, offend
        self.cuts = 0
        """Connections that were cut."""
        self._looking: asyncio.TimerHandle | None = None

    def __len__(self) -> int:
        return len(self.quota)

    def config(self, app: ASGIApp, **options: Any) -> uvicorn.Config:
        """uvicorn's settings to serve `app` on these connections."""
        return uvicorn.Config(
            _counted(app),
            http=self._make,  # type: ignore[arg-type]  # uvicorn calls it, and never asks for its type
            ws="none",
            loop="asyncio",  # limits and cuts rely on its transports; uvloop has others
            proxy_headers=False,
            server_header=False,
            access_log=False,  # it would keep tokens
            timeout_keep_alive=5,
            backlog=ACCEPTED,
            **options,
        )

    def enter(self, connection: Connection) -> bool:
        """Whether `connection` may stay."""
        if not self.may_enter(connection.address) or not self.quota.enter(connection):
            self.cuts += 1
            return False
        if self._looking is None:
            self._look()
        return True

    def _make(self, **given: Any) -> Connection:
        return Connection(self, given)

    def _look(self) -> None:
        """Cuts slow clients, every second while there are any connections."""
        loop = asyncio.get_running_loop()
        for connection in [each for each in self.quota if each.is_late(loop.time())]:
            if connection.sent:  # a browser may connect and say nothing
                self.offend(connection.address)
            connection.cut()
        self._looking = loop.call_later(EVERY, self._look) if len(self) else None


class Connection(asyncio.Protocol):
    """One connection. `given`: the arguments of uvicorn's own protocol."""

    def __init__(self, all: Connections, given: dict[str, Any]) -> None:
        self.address = ""
        self.proven = False
        """Whether its client has shown that it may be here."""
        self.sent = False
        """Whether its client has sent anything."""
        self._all = all
        self._protocol = H11Protocol(**{**given, "app_state": {**given["app_state"], STATE: self}})
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._requests = 0
        """Under way: more than one where a client sends the next before it has read the last response."""
        self._since = self._loop.time()
        """Since when it is the client's turn: to send a request, or to read."""
        self._paused = False
        """Whether the application waits for the client to read."""
        self._left = 0
        """Bytes that were left to read at that time."""
        self._began = False
        """Whether a part of a request has come whose headers are not complete."""

    @property
    def busy(self) -> bool:
        return self._requests > 0

    def is_late(self, now: float) -> bool:
        if self._transport is None or (self.busy and not self._paused):
            return False
        left = self._transport.get_write_buffer_size()
        if self._left - left >= PROGRESS:
            self._since, self._left = now, left
        self._left = max(self._left, left)
        return now - self._since > (STALL if left or self._paused else PATIENCE)

    def cut(self) -> None:
        assert self._transport is not None
        self._all.cuts += 1
        self._began = False  # to be cut is no offence
        self._transport.abort()  # also a closing one that waits for the client to read the rest

    def prove(self) -> None:
        """Its client has shown that it may be here."""
        self.proven = True
        self._all.quota.prove(self)

    def begin(self) -> None:
        """A request's headers are complete."""
        self._requests += 1
        self._began = False

    def end(self) -> None:
        """A request has its response."""
        self._requests -= 1
        self._began = False
        self._since = self._loop.time()

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        peer = transport.get_extra_info("peername")
        self.address = address_of(str(peer[0])) if peer else ""
        if not self._all.enter(self):
            transport.abort()
            return
        self._transport = transport
        self._protocol.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._transport is None or self._transport.is_closing():  # it was cut, and data was still on its way
            return
        self.sent = True
        if not self.busy:
            self._began = True
        self._protocol.data_received(data)

    def eof_received(self) -> None:
        """The client sends no more: the transport closes itself once the client has read the rest."""
        self._wait()

    def pause_writing(self) -> None:
        self._wait()
        self._protocol.pause_writing()

    def resume_writing(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._paused = False
        self._protocol.resume_writing()

    def connection_lost(self, error: Exception | None) -> None:
        self._all.quota.leave(self)
        if self._transport is None:
            return
        if self._began:
            self._all.offend(self.address)
        self._protocol.connection_lost(error)

    def _wait(self) -> None:
        if not self._paused:
            self._paused, self._since = True, self._loop.time()


def proven(scope: Scope) -> None:
    """The client that sent the request of `scope` may be here: unproven clients do not displace it."""
    if connection := _connection(scope):
        connection.prove()


def _connection(scope: Scope) -> Connection | None:
    """None where another server than that of `Connections.config` runs the application."""
    found = scope.get("state", {}).get(STATE)
    assert found is None or isinstance(found, Connection)
    return found


def _counted(app: ASGIApp) -> ASGIApp:
    """`app`, telling connections when requests begin and end, and closing unproven ones after a response."""

    async def counted(scope: Scope, receive: Receive, send: Send) -> None:
        connection = _connection(scope)
        if connection is None:
            await app(scope, receive, send)
            return

        async def last(message: Message) -> None:
            if message["type"] == "http.response.start" and not connection.proven:
                MutableHeaders(scope=message)["connection"] = "close"
            await send(message)

        connection.begin()
        try:
            await app(scope, receive, last)
        finally:
            connection.end()

    return counted
