"""What a judge says over HTTP: a Starlette application before a `Service`.

POST /ask      an Ask     -> a Posed
POST /answer   an Answer  -> a Verdict, or a Receipt where scoring takes longer
GET  /         the judge's card      GET /leaderboard      GET /health      (JSON)
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal.judge import reports
from shoal.judge.messages import MAX_BYTES, Envelope, Malformed, Refusal, encode
from shoal.judge.rules import OFFENCES, Reason, Refused
from shoal.judge.service import Service
from shoal.swarm.addresses import address_of

Handler = Callable[[Request], Awaitable[Response]]
BODY_SECONDS = 5.0
"""For a request's body to arrive."""
REQUESTS = 2000
"""Under way at a time."""
BOARD_ROWS = 1000
BOARD_SECONDS = 10.0
"""For which a leaderboard is good."""


class Web:
    """The handlers. `app` is the ASGI application; its lifespan is the service's."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._board: list[dict[str, Any]] = []
        self._board_due = 0.0
        self._board_lock = asyncio.Lock()
        self._requests = 0
        self.app = Starlette(
            routes=[
                Route("/", self._bounded(self.card)),
                Route("/health", self._bounded(self.health)),
                Route("/leaderboard", self._bounded(self.leaderboard)),
                Route("/ask", self._bounded(self.ask), methods=["POST"]),
                Route("/answer", self._bounded(self.answer), methods=["POST"]),
            ],
            exception_handlers={
                Refused: self._refused,
                Malformed: self._malformed,
                ClientDisconnect: self._gone,
                404: self._missing,
                405: self._missing,
            },
            lifespan=lambda _: service.running(),
        )

    async def ask(self, request: Request) -> Response:
        return _reply(await self.service.ask(await _body(request), _address(request)))

    async def answer(self, request: Request) -> Response:
        return _reply(await self.service.answer(await _body(request)))

    async def card(self, _: Request) -> Response:
        return Response(msgspec.json.encode(self.service.card()), media_type="application/json")

    async def health(self, _: Request) -> Response:
        return JSONResponse(self.service.state())

    async def leaderboard(self, _: Request) -> Response:
        """However long it takes, it is made a twentieth of the time at most; meanwhile the old one does."""
        if not (self._board and self._board_lock.locked()):
            async with self._board_lock:
                if (began := time.monotonic()) >= self._board_due:
                    path = self.service.records.path
                    self._board = await asyncio.to_thread(reports.leaderboard_of, path, BOARD_ROWS)
                    now = time.monotonic()
                    self._board_due = now + max(BOARD_SECONDS, 20 * (now - began))
        return JSONResponse(self._board)

    def _bounded(self, handler: Handler) -> Handler:
        """`handler` behind the bounds on requests: of an address, and of all at a time."""

        async def handle(request: Request) -> Response:
            addresses = self.service.addresses
            self._requests += 1
            try:
                if not addresses.request(_address(request)):
                    raise Refused(Reason.address, "too many requests from your address", addresses.rates.shut)
                if self._requests > REQUESTS:
                    raise Refused(Reason.busy, "too many requests at a time", 1.0)
                return await handler(request)
            finally:
                self._requests -= 1

        return handle

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        reason, wait = error.reason, error.retry_after
        self.service.refused[reason] += 1
        headers = {"retry-after": str(round(wait + 0.5))} if wait is not None else {}
        if reason in OFFENCES:
            self.service.addresses.offend(_address(request))
        if reason in OFFENCES | {Reason.slow, Reason.address}:
            headers["connection"] = "close"
        message = Refusal(reason.value, error.detail, self.service.clock(), wait)
        return Response(encode(message), reason.status, headers, "application/msgpack")

    async def _malformed(self, request: Request, error: Exception) -> Response:
        return await self._refused(request, Refused(Reason.malformed, str(error)[:200]))

    async def _gone(self, request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # which nobody reads

    async def _missing(self, request: Request, error: Exception) -> Response:
        """What no honest program asks for."""
        self.service.addresses.offend(_address(request))
        assert isinstance(error, HTTPException)
        return Response(status_code=error.status_code, headers={"connection": "close"})


async def _body(request: Request) -> bytes:
    """The request's body, in time and within its bounds."""
    data = bytearray()
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for chunk in request.stream():
                data += chunk
                if len(data) > MAX_BYTES:
                    raise Refused(Reason.size, f"more than {MAX_BYTES} bytes")
    except TimeoutError:
        raise Refused(Reason.slow, f"the request took more than {BODY_SECONDS:g} s to arrive") from None
    return bytes(data)


def _reply(envelope: Envelope) -> Response:
    return Response(encode(envelope), media_type="application/msgpack")


def _address(request: Request) -> str:
    return address_of(request.client.host) if request.client else ""
