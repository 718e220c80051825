"""Has uvicorn serve a judge until it is stopped."""

from __future__ import annotations

import gc
import logging
import socket
import sys
import time
from datetime import timedelta

import uvicorn
from rich.console import Console
from rich.text import Text

from shoal_host.judge.service import Service
from shoal_host.judge.web import Web
from shoal_web.serving import server
from shoal_web.serving.connections import Connections

SWITCH = 0.001
"""Seconds after which a thread yields: by default, making a question would hold up the loop five times as long."""
HEADERS = 8192
"""Bytes of a request's headers."""
SPARE = 128
"""Open files besides connections."""


class Server(server.Server):
    """Prints its address, and its state now and then."""

    def __init__(self, config: uvicorn.Config, web: Web, console: Console, every: float) -> None:
        super().__init__(config)
        self._web, self._console, self._every = web, console, every
        self._started = self._printed = time.monotonic()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            (host, port, *_), identity = sockets[0].getsockname(), self._web.service.identity
            self._console.print(Text(f"judge {identity.name} on {host}:{port}; stop with Ctrl-C"))
            self._console.print(Text(f"nodes ask it with --judges http://HOST:{port}#{identity.id}"))

    async def on_tick(self, counter: int) -> bool:
        now = time.monotonic()
        if now - self._printed >= self._every:
            self._printed = now
            self.print_state()
        return await super().on_tick(counter)

    def print_state(self) -> None:
        state, up = self._web.state(), timedelta(seconds=int(time.monotonic() - self._started))
        refused = sum(state["refused"].values())
        words = [f"{state[name]} {name}" for name in ("asked", "scored", "lapsed", "under_way", "connections", "cut")]
        full = ", the disk is full" if state["full"] else ""
        self._console.print(Text(f"up {up}, {', '.join(words)}, {refused} refused{full}".replace("_", " ")))


def serve(service: Service, listening: socket.socket, every: float, most: int) -> int:
    """Serves on the socket until SIGINT or SIGTERM. Returns the exit code. `most`: connections at a time."""
    logging.getLogger("uvicorn.error").setLevel(logging.ERROR)  # it would write a line for each malformed request
    addresses = service.addresses
    connections = Connections(most, addresses.rates.connections, addresses.may_enter, addresses.offend)
    web = Web(service, connections)
    config = connections.config(
        web.app,
        lifespan="on",
        log_config=None,
        date_header=False,
        timeout_graceful_shutdown=5,
        h11_max_incomplete_event_size=HEADERS,
    )
    serving = Server(config, web, Console(highlight=False, soft_wrap=True), every)

    sys.setswitchinterval(SWITCH)
    gc.collect()
    gc.freeze()  # a full collection over everything of sympy and reasoning-gym stops the loop for 50 to 100 ms
    serving.serve_until_stopped(listening)
    serving.print_state()
    return 0 if serving.started else 1


def most_connections(wanted: int) -> int:
    """`wanted`, or as many as the system allows this process to have open."""
    try:
        import resource
    except ImportError:  # Windows
        return wanted
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < wanted + SPARE:
        soft = min(hard, wanted + SPARE) if hard != resource.RLIM_INFINITY else wanted + SPARE
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, min(wanted, soft - SPARE))
