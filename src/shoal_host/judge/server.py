"""The judge's HTTP interface: a Starlette application around a `Service`, and uvicorn, which serves it.

POST /ask      an Ask     -> a Posed
POST /answer   an Answer  -> a Verdict, or a Receipt if scoring takes longer
GET  /         the judge's card      GET /leaderboard      GET /health      (JSON)
"""

import asyncio
import logging
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from shoal_host.addresses import address_of
from shoal_host.judge import reports
from shoal_host.judge.messages import MAX_BYTES, Envelope, Malformed, Refusal, encode
from shoal_host.judge.rules import STATUS, Refused
from shoal_host.judge.service import Service
from shoal_web.serving import server
from shoal_web.serving.pages import read_body

BOARD_ROWS = 1000
BOARD_SECONDS = 10.0
"""Seconds for which a leaderboard is good."""


class Web:
    """The handlers. `app` is the ASGI application; its lifespan is the service's."""

    def __init__(self, service: Service) -> None:
        self.service = service
        self._board: list[dict[str, Any]] = []
        self._board_due = 0.0
        self._board_lock = asyncio.Lock()
        self.app = Starlette(
            routes=[
                Route("/", self.card),
                Route("/health", self.health),
                Route("/leaderboard", self.leaderboard),
                Route("/ask", self._statement(service.ask), methods=["POST"]),
                Route("/answer", self._statement(service.answer), methods=["POST"]),
            ],
            exception_handlers={Refused: self._refused, ClientDisconnect: self._gone},
            lifespan=lambda _: service.running(),
        )

    async def card(self, _: Request) -> Response:
        return JSONResponse(self.service.card())

    async def health(self, _: Request) -> Response:
        return JSONResponse(self.service.state())

    async def leaderboard(self, _: Request) -> Response:
        """Making it takes at most a twentieth of the time, however long it takes."""
        async with self._board_lock:
            if (began := time.monotonic()) >= self._board_due:
                self._board = await asyncio.to_thread(reports.leaderboard_of, self.service.records.path, BOARD_ROWS)
                now = time.monotonic()
                self._board_due = now + max(BOARD_SECONDS, 20 * (now - began))
        return JSONResponse(self._board)

    def _statement(
        self, reply: Callable[[bytes, str], Awaitable[Envelope]]
    ) -> Callable[[Request], Awaitable[Response]]:
        """A handler that has `reply` answer a node's statement."""

        async def handle(request: Request) -> Response:
            address = address_of(request.client.host) if request.client else ""
            try:
                envelope = await reply(await read_body(request, MAX_BYTES), address)
            except Malformed as error:
                raise Refused("malformed", str(error)[:200]) from None
            except HTTPException as error:
                reason = "slow" if error.status_code == STATUS["slow"] else "size"
                raise Refused(reason, error.detail) from None
            return Response(encode(envelope), media_type="application/msgpack")

        return handle

    async def _refused(self, _: Request, error: Exception) -> Response:
        assert isinstance(error, Refused)
        reason, wait = error.reason, error.retry_after
        self.service.refused[reason] += 1
        headers = {"retry-after": str(round(wait + 0.5))} if wait is not None else {}
        message = Refusal(reason, error.detail, self.service.clock(), wait, self.service.terms.work)
        return Response(encode(message), STATUS[reason], headers, "application/msgpack")

    async def _gone(self, _: Request, error: Exception) -> Response:
        return Response(status_code=400)  # which nobody reads


def serve(service: Service, listening: socket.socket) -> int:
    """Serves on the socket until SIGINT or SIGTERM. Returns the exit code."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it would write a line for each malformed request
    config = server.server_config(
        Web(service).app, lifespan="on", log_config=None, date_header=False, timeout_graceful_shutdown=5
    )
    serving, identity = server.Server(config), service.identity
    host, port, *_ = listening.getsockname()
    print(f"judge {identity.name} on {host}:{port}; stop with Ctrl-C")
    print(f"nodes ask it with --judges http://HOST:{port}#{identity.id}", flush=True)
    serving.serve_until_stopped(listening)
    return 0 if serving.started else 1
