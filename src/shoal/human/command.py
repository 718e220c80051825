"""`shoal human`: a page in which a person joins a swarm, and a door for programs that answer."""

from __future__ import annotations

import argparse
import signal
import socket
import threading
import webbrowser
from contextlib import closing
from pathlib import Path
from types import FrameType
from typing import Any

from shoal.config import make_config, read_config
from shoal.errors import UserError
from shoal.flags import add_settings, given_settings, merged

HELP = """Opens a page in which you join a swarm: you answer questions or rank what nodes wrote, see how it scored, and
which nodes learned from it since. What you send is signed and admitted like any node's. Programs may answer by the same
address (docs/human.md).

  shoal human                                    finds nodes on the local network
  shoal human relay.example.org:7447 --swarm reef
  shoal human HOST:PORT --suite paper            the tasks must be those of the swarm
  shoal human HOST:PORT --kind program --model my-solver --no-open

It answers this machine alone unless --listen says otherwise, and then it asks for a token, which it prints. What it
sends to a browser is not encrypted: beyond a network that you trust, put it behind TLS."""
LISTEN = "127.0.0.1:8401"
SETTINGS = [
    "tasks.suite",
    "tasks.only",
    "tasks.held_out",
    "tasks.partial_credit",
    "policy.max_completion_length",
    "network.swarm",
    "network.lan",
    "network.secret_file",
    "network.tls_ca",
    "network.tls_certificate",
    "network.tls_key",
    "network.neighbours",
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal human`."""
    parser.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="relays or nodes to reach: HOST:PORT")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings of a node of this swarm (config.toml)")
    parser.add_argument("--listen", metavar="HOST:PORT", help=f"where the page is (default {LISTEN})")
    parser.add_argument("--name", action="append", default=[], metavar="HOST", help="another name it is reached by")
    parser.add_argument("--token-file", type=Path, metavar="FILE", help="ask for the token in this file, everywhere")
    parser.add_argument("--no-open", action="store_true", help="open no browser")
    parser.add_argument(
        "--home", type=Path, metavar="DIR", help="identity and journal (default: human/ beside this machine's identity)"
    )
    parser.add_argument(
        "--kind", choices=["human", "program"], default="human", help="what answers, for others to know"
    )
    parser.add_argument("--model", metavar="NAME", help="what a program calls itself")
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """`shoal human`."""
    try:
        import uvicorn

        from shoal.human.server import make_app
    except ImportError as error:
        raise UserError(f"the page needs {error.name}: pip install 'shoal[watch]'") from None
    from shoal.human.contributor import Contributor
    from shoal.swarm.identity import identity_path
    from shoal.window.command import _address, _bound, _is_loopback, _token
    from shoal.window.guard import LOOPBACK, Access, new_token

    given = merged(given_settings(args), {"swarm": {"nodes": 1}})
    if args.endpoints:
        given = merged(given, {"network": {"connect": args.endpoints}})
    below = read_config(args.config) if args.config else {}
    config = make_config(merged(below, given), "the command line")
    host, port = _address(args.listen or LISTEN)
    token = _token(args.token_file) if args.token_file else None
    if token is None and not _is_loopback(host):
        token = new_token()
    anywhere = host in ("0.0.0.0", "::")
    names = {host, *args.name} | ({socket.gethostname(), f"{socket.gethostname()}.local"} if anywhere else set())
    access = Access(LOOPBACK | {name.lower() for name in names}, any_address=anywhere, token=token)
    bound = _bound(host, port, other=not args.listen)
    home = args.home or identity_path().parent / "human"
    with closing(bound), closing(Contributor(config, home, args.kind, args.model)) as one:
        shown = socket.gethostname() if anywhere else f"[{host}]" if ":" in host else host
        address = f"http://{shown}:{bound.getsockname()[1]}/"
        secret = f"?token={token}" if token and not args.token_file else ""
        print(f"{one.identity.name} in {one.swarm}: answer at {address}{secret}  (Ctrl-C ends it)", flush=True)
        if not args.no_open:
            local = address.replace(shown, "127.0.0.1", 1) if anywhere else address
            threading.Timer(0.5, webbrowser.open, [local + secret]).start()
        settings = uvicorn.Config(
            make_app(one, access),
            log_level="error",
            access_log=False,  # it would keep the token
            server_header=False,
            proxy_headers=False,
            ws="none",
            timeout_graceful_shutdown=1,
            limit_concurrency=64,
            h11_max_incomplete_event_size=16_384,
        )
        return _serve(uvicorn.Server(settings), bound)


def _serve(server: Any, bound: socket.socket) -> int:
    """Until SIGINT or SIGTERM; uvicorn takes both, and raises the first again once it has ended."""

    def ended(number: int, frame: FrameType | None) -> None:
        """It has."""

    previous = {number: signal.signal(number, ended) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        server.run(sockets=[bound])
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0
