"""Where a page listens, who may open it, and uvicorn's server on it.

    with opened_place(args, LISTEN) as place:       # after `add_arguments`
        return serve(make_app(..., place.access), place, "watching 2 runs", show=True)

uvicorn bounds the size of headers, the number of connections and the idle time after an answer. It does not cut silent
and slow clients: a reverse proxy does, which belongs before whatever strangers reach (docs/guides/deploy.md).
"""

import argparse
import contextlib
import ipaddress
import logging
import secrets
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp

from shoal.errors import UserError
from shoal.signals import on_stop
from shoal_web.serving.guard import LOOPBACK, SHORTEST, Access

EVERYWHERE: Final = ("0.0.0.0", "::")
CONNECTIONS: Final = 900  # at a time; more are answered with 503. Systems often let a process open 1,024 files.
HEADERS: Final = 16_384  # bytes of a request's headers
BROWSER: Final = 0.5  # seconds until a browser opens the page


class Server(uvicorn.Server):
    """uvicorn's server, which ends in order at the first signal and says nothing of clients that it leaves."""

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Ends what clients hold open, each of which uvicorn would report as an error."""
        logging.getLogger("uvicorn.error").setLevel(logging.CRITICAL)
        await super().shutdown(sockets)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # `serve_until_stopped` handles them: uvicorn would end with a traceback at a second one

    def serve_until_stopped(self, bound: socket.socket) -> None:
        """Serves on the socket until SIGINT or SIGTERM."""

        def stop() -> None:
            self.should_exit = True

        with on_stop(stop):
            self.run(sockets=[bound])


def server_config(app: ASGIApp, connections: int = CONNECTIONS, **options: Any) -> uvicorn.Config:
    """uvicorn's settings to serve `app`. A proxy on this machine tells whose request it passes on (X-Forwarded-For)."""
    return uvicorn.Config(
        app,
        http="h11",  # which bounds headers
        ws="none",
        server_header=False,
        access_log=False,  # it would keep tokens
        limit_concurrency=connections,
        h11_max_incomplete_event_size=HEADERS,
        **options,
    )


@dataclass(frozen=True)
class Place:
    """A bound socket, who may connect to it, and its address for a reader and for a browser on this machine."""

    bound: socket.socket
    access: Access
    address: str
    local: str


def add_arguments(parser: argparse.ArgumentParser, listen: str) -> None:
    """The flags that `opened_place` reads."""
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"address of the page (default {listen})")
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help="another name of this machine")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="ask everybody for the token in this file")
    parser.add_argument("--no-open", action="store_true", help="do not open a browser")


@contextmanager
def opened_place(args: argparse.Namespace, default: str, keep_port: bool = False) -> Iterator[Place]:
    """The place that the flags name. Without `--listen` it is `default`, or, unless `keep_port`, another port if that
    is taken. A place that other machines reach asks for a token. Raises `UserError`."""
    host, port = address_of(args.listen or default, default)
    token = read_token(args.token_file) if args.token_file else None if is_loopback(host) else secrets.token_urlsafe(24)
    anywhere = host in EVERYWHERE
    names = {host, *args.name} | ({socket.gethostname(), f"{socket.gethostname()}.local"} if anywhere else set())
    access = Access(LOOPBACK | {name.lower() for name in names}, any_address=anywhere, token=token)
    with listening(host, port, other=not (args.listen or keep_port)) as bound:
        secret = f"?token={token}" if token and not args.token_file else ""
        rest = f":{bound.getsockname()[1]}/{secret}"
        shown = f"[{host}]" if ":" in host else host
        address = f"http://{socket.gethostname() if anywhere else shown}{rest}"
        yield Place(bound, access, address, f"http://{'127.0.0.1' if anywhere else shown}{rest}")


def serve(app: ASGIApp, place: Place, what: str, show: bool) -> int:
    """Serves until SIGINT or SIGTERM; the exit code. Prints `what` and where. `show`: opens a browser."""
    config = server_config(app, log_level="error", timeout_graceful_shutdown=1)
    print(f"{what} at {place.address}  (Ctrl-C ends it)", flush=True)
    if show:
        threading.Timer(BROWSER, webbrowser.open, [place.local]).start()
    Server(config).serve_until_stopped(place.bound)
    return 0


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def read_token(file: Path) -> str:
    """The token in a file. Raises `UserError`."""
    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token in {file}: {error}") from None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the token in {file} needs {SHORTEST} characters or more: openssl rand -hex 16 > {file}")
    return token


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
            family, *_ = socket.getaddrinfo(host, attempt, type=socket.SOCK_STREAM)[0]
            both = host == "::" and socket.has_dualstack_ipv6()
            return socket.create_server((host, attempt), family=family, dualstack_ipv6=both)
        except OSError as error:
            reason = (error.strerror or str(error)).partition(" (while")[0]
    raise UserError(f"cannot listen at {host}:{port}: {reason}; choose another address with --listen")
