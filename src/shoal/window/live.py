"""News for open pages, as server-sent events: that a source has something new. The page then asks what it shows.

event: news
data: {"versions": {"3f0c...": 12}}
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import anyio.to_thread
import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from shoal.window.source import Sources

EVERY = 1.0
"""Seconds between two looks at the sources, while a page is open."""
BEAT = 15.0
"""Seconds after which something is sent to a page even without news, so that both ends know of each other."""
PAGES = 64
"""Open at a time."""


class Live:
    """Looks at the sources while pages are open, and tells them."""

    def __init__(self, sources: Sources, every: float = EVERY) -> None:
        self._sources = sources
        self._every = every
        self._pages = 0
        self._news = asyncio.Event()
        self._versions: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def events(self, request: Request) -> Response:
        """`/events`"""
        if self._pages >= PAGES:
            return Response("too many pages are open", 503)
        return StreamingResponse(self._stream(), media_type="text/event-stream")

    async def _stream(self) -> AsyncIterator[bytes]:
        self._pages += 1
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())
        try:
            yield b"retry: 2000\n\n"
            told: dict[str, int] | None = None
            while True:
                news = self._news
                versions = dict(self._versions)
                if versions != told:
                    yield b"event: news\ndata: " + msgspec.json.encode({"versions": versions}) + b"\n\n"
                    told = versions
                try:
                    await asyncio.wait_for(news.wait(), BEAT)
                except TimeoutError:
                    yield b": still here\n\n"
        finally:
            self._pages -= 1

    async def _watch(self) -> None:
        while self._pages:
            with contextlib.suppress(OSError):
                await anyio.to_thread.run_sync(self._sources.look)
            versions = {source.id: source.version for source in self._sources.all()}
            if versions != self._versions:
                self._versions = versions
                self._news, before = asyncio.Event(), self._news
                before.set()
            await asyncio.sleep(self._every)
