"""uvicorn's server, which keeps answering while connections pour in."""

from __future__ import annotations

import socket
from typing import Final

import uvicorn

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
