"""Where a page listens and who may open it: what `shoal watch` and `shoal human` have in common.

with opened_place(args, LISTEN) as place:       # after `add_arguments`
    return serve(make_app(..., place.access), place, "watching 2 runs", show=True)
"""

from __future__ import annotations

import argparse
import ipaddress
import secrets
import socket
import threading
import webbrowser
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.errors import UserError

if TYPE_CHECKING:
    from starlette.types import ASGIApp

    from shoal_web.serving.guard import Access

EVERYWHERE = ("0.0.0.0", "::")
CONNECTIONS = 256
"""At a time."""
BROWSER = 0.5
"""Seconds until a browser opens the page."""


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
    from shoal_web.serving.guard import LOOPBACK, Access
    from shoal_web.serving.server import address_of, listening

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
    from shoal_web.serving.connections import Connections
    from shoal_web.serving.server import Server

    config = Connections(CONNECTIONS).config(
        app, log_level="error", timeout_graceful_shutdown=1, h11_max_incomplete_event_size=16_384
    )
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
    from shoal_web.serving.guard import SHORTEST

    try:
        token = file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the token in {file}: {error}") from None
    if len(token) < SHORTEST or not token.isascii() or not token.isprintable() or " " in token:
        raise UserError(f"the token in {file} needs {SHORTEST} characters or more: openssl rand -hex 16 > {file}")
    return token
