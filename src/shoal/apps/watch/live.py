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
from starlette.types import Receive, Scope, Send

from shoal.apps.serving.places import Places
from shoal.apps.watch.source import Sources
from shoal.swarm.addresses import address_of

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
        self.pages: Places[Stream] = Places(PAGES)
        self.versions: dict[str, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def events(self, request: Request) -> Response:
        """`/events`"""
        return Stream(self, address_of(request.client.host) if request.client else "")

    def watch(self) -> None:
        """Looks from now on, until no page is open."""
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while len(self.pages):
            with contextlib.suppress(OSError):
                await anyio.to_thread.run_sync(self._sources.look)
            versions = {source.id: source.version for source in self._sources.all()}
            if versions != self.versions:
                self.versions = versions
                for page in self.pages:
                    page.wake.set()
            await asyncio.sleep(self._every)


class Stream(StreamingResponse):
    """What one page is told. It has a place from its first byte until its end, however it ends."""

    busy = True

    def __init__(self, live: Live, address: str) -> None:
        super().__init__(self._told(), media_type="text/event-stream")
        self.address = address
        self.wake = asyncio.Event()
        self._live = live
        self._over = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if not self._live.pages.enter(self, proven=True):
            await Response("too many pages are open", 503)(scope, receive, send)
            return
        try:
            self._live.watch()
            await super().__call__(scope, receive, send)
        finally:
            self._live.pages.leave(self)

    def cut(self) -> None:
        """Its place goes to another address, which has fewer."""
        self._over = True
        self.wake.set()

    async def _told(self) -> AsyncIterator[bytes]:
        yield b"retry: 2000\n\n"
        told: dict[str, int] | None = None
        while not self._over:
            self.wake.clear()
            versions = self._live.versions
            if versions != told:
                yield b"event: news\ndata: " + msgspec.json.encode({"versions": versions}) + b"\n\n"
                told = versions
            try:
                await asyncio.wait_for(self.wake.wait(), BEAT)
            except TimeoutError:
                yield b": still here\n\n"
