"""The judge's HTTP interface: a Starlette application around a `Service`.

POST /ask      an Ask     -> a Posed
POST /answer   an Answer  -> a Verdict, or a Receipt if scoring takes longer
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

from shoal.admission.addresses import address_of
from shoal_host.judge import reports
from shoal_host.judge.messages import MAX_BYTES, Envelope, Malformed, Refusal, encode
from shoal_host.judge.rules import OFFENCES, Reason, Refused
from shoal_host.judge.service import Service
from shoal_web.serving.bodies import BodyError, read_body
from shoal_web.serving.connections import Connections, proven

Handler = Callable[[Request], Awaitable[Response]]
BOARD_ROWS = 1000
BOARD_SECONDS = 10.0
"""Seconds for which a leaderboard is good."""


class Web:
    """The handlers. `app` is the ASGI application; its lifespan is the service's."""

    def __init__(self, service: Service, connections: Connections) -> None:
        self.service, self.connections = service, connections
        self._board: list[dict[str, Any]] = []
        self._board_due = 0.0
        self._board_lock = asyncio.Lock()
        self.app = Starlette(
            routes=[
                Route("/", self._limited(self.card)),
                Route("/health", self._limited(self.health)),
                Route("/leaderboard", self._limited(self.leaderboard)),
                Route("/ask", self._limited(self._statement(service.ask)), methods=["POST"]),
                Route("/answer", self._limited(self._statement(service.answer)), methods=["POST"]),
            ],
            exception_handlers={
                Refused: self._refused,
                ClientDisconnect: self._gone,
                404: self._missing,
                405: self._missing,
            },
            lifespan=lambda _: service.running(),
        )

    async def card(self, _: Request) -> Response:
        return Response(msgspec.json.encode(self.service.card()), media_type="application/json")

    async def health(self, _: Request) -> Response:
        return JSONResponse(self.state())

    async def leaderboard(self, _: Request) -> Response:
        """Making it takes at most a twentieth of the time, however long it takes; meanwhile the old one is sent."""
        if not (self._board and self._board_lock.locked()):
            async with self._board_lock:
                if (began := time.monotonic()) >= self._board_due:
                    path = self.service.records.path
                    self._board = await asyncio.to_thread(reports.leaderboard_of, path, BOARD_ROWS)
                    now = time.monotonic()
                    self._board_due = now + max(BOARD_SECONDS, 20 * (now - began))
        return JSONResponse(self._board)

    def state(self) -> dict[str, Any]:
        """The state of the judge and its connections, as plain data."""
        connections = self.connections
        return {**self.service.state(), "connections": len(connections), "cut": connections.cuts}

    def _statement(self, reply: Callable[[bytes, str], Awaitable[Envelope]]) -> Handler:
        """A handler that has `reply` answer a node's statement, and keeps the connection."""

        async def handle(request: Request) -> Response:
            try:
                envelope = await reply(await read_body(request, MAX_BYTES), _address(request))
            except Malformed as error:
                raise Refused(Reason.malformed, str(error)[:200]) from None
            except BodyError as error:
                raise Refused(Reason.slow if error.status == Reason.slow.status else Reason.size, str(error)) from None
            proven(request.scope)
            return Response(encode(envelope), media_type="application/msgpack")

        return handle

    def _limited(self, handler: Handler) -> Handler:
        """`handler` behind the limit on requests of an address."""

        async def handle(request: Request) -> Response:
            addresses = self.service.addresses
            if not addresses.request(_address(request)):
                raise Refused(Reason.address, "too many requests from your address", addresses.rates.shut)
            return await handler(request)

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

    async def _gone(self, request: Request, error: Exception) -> Response:
        return Response(status_code=400)  # which nobody reads

    async def _missing(self, request: Request, error: Exception) -> Response:
        """No honest program requests this."""
        self.service.addresses.offend(_address(request))
        assert isinstance(error, HTTPException)
        return Response(status_code=error.status_code, headers={"connection": "close"})


def _address(request: Request) -> str:
    return address_of(request.client.host) if request.client else ""
