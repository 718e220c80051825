"""uvicorn's server, which goes on answering while connections pour in."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

ACCEPTED: Final = 32
"""Connections that are accepted at a time."""
QUEUE: Final = 2048
"""Connections that wait in the system to be accepted."""


class Server(uvicorn.Server):
    """asyncio accepts as many connections in a row as may wait, and reads no request meanwhile. Here it accepts few
    (`Connections.config`), and still many may wait."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        for bound in sockets or ():
            bound.listen(QUEUE)
