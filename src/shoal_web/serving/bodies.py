"""A request's body, bounded in size and time."""

from __future__ import annotations

import asyncio
from typing import Final

from starlette.requests import Request

SECONDS: Final = 5.0
"""For a body to arrive."""


class BodyError(Exception):
    """The body is too long, or takes too long. `status`: the HTTP status that says so."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


async def read_body(request: Request, most: int, seconds: float = SECONDS) -> bytes:
    """The body of `request`, of at most `most` bytes. Raises `BodyError`."""
    data = bytearray()
    try:
        async with asyncio.timeout(seconds):
            async for chunk in request.stream():
                data += chunk
                if len(data) > most:
                    raise BodyError(413, f"more than {most} bytes")
    except TimeoutError:
        raise BodyError(408, f"the request took more than {seconds:g} s to arrive") from None
    return bytes(data)
