"""A socket that listens, and uvicorn's server on it until a signal stops it."""

from __future__ import annotations

import contextlib
import logging
import signal
import socket
import sys
from collections.abc import Iterator
from typing import Final

import uvicorn

from shoal.errors import UserError

ACCEPTED: Final = 32
"""Connections that are accepted in a row, before requests are read."""
QUEUE: Final = 2048
"""Connections that wait in the operating system until they are accepted."""


class Server(uvicorn.Server):
    """Accepts few connections in a row (`Connections.config`) and lets many wait.

    asyncio ties the two numbers together: it accepts as many in a row as may wait, and reads no request meanwhile."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(QUEUE)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what clients hold open, each of which uvicorn would report as an error."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `serve` handles them: uvicorn would end with a traceback at a second one

    def serve_until_stopped(self, bound: socket.socket) -> None:
        """Serves on the socket until SIGINT or SIGTERM."""

        def stop(*_: object) -> None:
            self.should_exit = True

        previous = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            self.run(sockets=[bound])
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)


def address_of(text: str, example: str) -> tuple[str, int]:
    """Host and port. Raises `UserError`, which shows the `example`."""
    host, _, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isdecimal() or int(port) > 65535:
        raise UserError(f"--listen {text}: give HOST:PORT, for example {example}")
    return host, int(port)


def listening(host: str, port: int, other: bool = False) -> socket.socket:
    """A socket that listens there, or on another port if it is taken and `other`. Clients that come before the server
    is ready wait. Raises `UserError`."""
    for attempt in (port, 0) if other else (port,):
        try:
            family, kind, protocol, _, address = socket.getaddrinfo(host, attempt, type=socket.SOCK_STREAM)[0]
            bound = socket.socket(family, kind, protocol)
            try:
                if sys.platform != "win32":
                    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                bound.bind(address)
                bound.listen(QUEUE)
                return bound
            except OSError:
                bound.close()
                raise
        except OSError as error:
            reason = error.strerror or str(error)
    raise UserError(f"cannot listen at {host}:{port}: {reason}; choose another address with --listen")
