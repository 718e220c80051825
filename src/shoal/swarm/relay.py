"""A relay: a Zenoh router that carries a swarm's messages between nodes that cannot reach each other.

    shoal relay                                             # on a machine that others reach, port 7447
    shoal relay --connect relay.example.org:7447            # another one, which knows the first
    shoal run --connect relay.example.org:7447              # a node

Anybody can host one. It keeps nothing that it carries and is trusted with nothing: every rollout is signed by its
author and checked by its reader. It carries keys of `shoal/**` only, and bounds sizes. The `forwarder` before Zenoh
bounds what one address may have and ask for: connections, declarations and messages. Zenoh has no such bounds
("downsampling" lets 1 of 20 rollouts pass where a round's come in one burst).
"""

from __future__ import annotations

import argparse
import ipaddress
import signal
import sys
import tempfile
import threading
import time
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import zenoh
from rich.console import Console
from rich.text import Text

from shoal.errors import UserError
from shoal.swarm.addresses import address_of
from shoal.swarm.forwarder import Forwarder, Limits, forwarded
from shoal.swarm.transport import MAX_MESSAGE, TransportOptions, base_config, open_config

HELP = "carry a swarm's messages between nodes that cannot reach each other"
LISTEN = "tcp/0.0.0.0:7447"
FILES = 4
"""Open files that a session takes: both ends of the forwarder, Zenoh's, and some room."""
KEYS = ["shoal/**"]
MESSAGES = [
    "put",
    "delete",
    "declare_subscriber",
    "query",
    "declare_queryable",
    "reply",
]
"""What is carried. Nodes need no liveliness tokens, each of which would cost all who look."""


@dataclass(frozen=True)
class RelayOptions:
    """What a relay is to do."""

    transport: TransportOptions
    limits: Limits = field(default_factory=Limits)
    """Nodes and relays that may be connected at a time."""
    max_bytes: int = MAX_MESSAGE // 2
    """Of one message."""
    every: float = 5.0
    """Seconds between status lines."""


def relay_config(options: RelayOptions, path: str) -> dict[str, Any]:
    """Zenoh's configuration for a relay that the forwarder reaches by the socket at `path`."""
    config = base_config(options.transport)
    config["mode"] = "router"
    passing = set(forwarded(options.transport))
    config["listen"]["endpoints"] = [each for each in options.transport.listen if each not in passing]
    config["listen"]["endpoints"].append(f"unixsock-stream/{path}")
    config["transport"]["link"]["protocols"].append("unixsock-stream")
    sessions = options.limits.sessions
    config["transport"]["unicast"] |= {"max_sessions": sessions, "accept_pending": sessions}
    config["adminspace"] = {"enabled": False}
    config["access_control"] = {
        "enabled": True,
        "default_permission": "deny",
        "rules": [
            {
                "id": "shoal",
                "permission": "allow",
                "flows": ["ingress", "egress"],
                "messages": MESSAGES,
                "key_exprs": KEYS,
            }
        ],
        "subjects": [{"id": "everybody"}],
        "policies": [{"rules": ["shoal"], "subjects": ["everybody"]}],
    }
    config["low_pass_filter"] = [
        {
            "id": "size",
            "flows": ["ingress"],
            "messages": ["put", "delete", "query", "reply"],
            "key_exprs": KEYS,
            "size_limit": options.max_bytes,
        }
    ]
    config["qos"] = {
        "network": [
            {
                # Else a sender could ask that all wait for the slowest reader.
                "messages": ["put", "delete", "query"],
                "key_exprs": KEYS,
                "flows": ["ingress"],
                "overwrite": {"congestion_control": "drop"},
            }
        ]
    }
    return config


def relay_session(options: RelayOptions) -> int:
    """Runs a relay until SIGINT or SIGTERM; the exit code. Raises `UserError`, for an address in use for instance."""
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    console = Console(highlight=False, soft_wrap=True)
    _allow_files(FILES * options.limits.sessions)
    try:
        with (
            closing(Forwarder(options.transport, options.limits)) as forwarder,
            tempfile.TemporaryDirectory(prefix="shoal-relay-") as folder,  # that nobody else may look into
            open_config(relay_config(options, f"{folder}/zenoh")) as session,
        ):
            forwarder.start(f"{folder}/zenoh", partial(_clean, session))
            console.print(Text(f"relay on {', '.join(options.transport.listen)}; stop with Ctrl-C"))
            if len(forwarded(options.transport)) < len(options.transport.listen):
                console.print(Text("over quic/ there is no bound for one address"))
            started = time.monotonic()
            if console.is_interactive:
                with console.status("") as line:
                    while not stop.wait(min(options.every, 1.0)):
                        line.update(Text(_status(session, forwarder, started)))
            else:
                while not stop.wait(options.every):
                    console.print(Text(_status(session, forwarder, started)))
            console.print(Text(f"stopped; {_status(session, forwarder, started)}"))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    return 0


def _clean(session: zenoh.Session, key: str) -> None:
    """Zenoh never removes what somebody was interested in from its tree, but does so if a subscriber there leaves."""
    with suppress(zenoh.ZError):
        session.declare_subscriber(key, lambda sample: None).undeclare()


def _allow_files(needed: int) -> None:
    """Lets this process have as many open files as its connections take. Raises `UserError`."""
    if sys.platform == "win32":
        raise UserError("a relay needs Unix sockets: run it on Linux or macOS, or in Docker")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < needed:
        raise UserError(f"so many sessions take {needed} open files, and this user may have {hard}: see ulimit -n")
    if soft != resource.RLIM_INFINITY and soft < needed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal relay`."""
    parser.description = f"{HELP[0].upper()}{HELP[1:]}."
    parser.add_argument(
        "--listen", action="append", metavar="ENDPOINT", help=f"where nodes connect; may be repeated (default {LISTEN})"
    )
    parser.add_argument(
        "--connect", action="append", default=[], metavar="ENDPOINT", help="another relay to know; may be repeated"
    )
    parser.add_argument("--certificate", type=Path, metavar="PEM", help="certificate of this relay, for tls/ and quic/")
    parser.add_argument("--key", type=Path, metavar="PEM", help="private key of the certificate")
    parser.add_argument(
        "--ca", type=Path, metavar="PEM", help="certificate of the authority that others are checked by"
    )
    parser.add_argument("--mutual", action="store_true", help="let in only who shows a certificate of --ca")
    parser.add_argument("--max-sessions", type=int, default=1000, help="connections at a time (default 1000)")
    parser.add_argument(
        "--address-sessions", type=int, default=64, help="of them from one address, or IPv6 network /64 (default 64)"
    )
    parser.add_argument(
        "--exempt",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="IP address without limits of its own, for another relay with many nodes; may be repeated",
    )
    parser.add_argument(
        "--max-bytes", type=int, default=MAX_MESSAGE // 2, help=f"of one message (default {MAX_MESSAGE // 2})"
    )
    parser.add_argument("--every", type=float, default=5.0, metavar="SECONDS", help="between status lines (default 5)")


def command(args: argparse.Namespace) -> int:
    """`shoal relay`."""
    if args.max_sessions < 1 or not 1024 <= args.max_bytes <= MAX_MESSAGE or not args.every > 0:
        raise UserError(f"--max-sessions and --every must be above 0, and --max-bytes from 1024 to {MAX_MESSAGE}")
    if args.address_sessions < 1:
        raise UserError("--address-sessions must be above 0")
    transport = TransportOptions(
        connect=tuple(args.connect),
        listen=tuple(args.listen or [LISTEN]),
        ca=args.ca,
        certificate=args.certificate,
        key=args.key,
        mutual=args.mutual,
    )
    limits = Limits(args.max_sessions, args.address_sessions, frozenset(_address(text) for text in args.exempt))
    return relay_session(RelayOptions(transport, limits, args.max_bytes, args.every))


def _address(text: str) -> str:
    try:
        return address_of(str(ipaddress.ip_address(text)))
    except ValueError:
        raise UserError(f"--exempt {text}: write an IP address, as 203.0.113.7 or 2001:db8::7") from None


def _status(session: zenoh.Session, forwarder: Forwarder, started: float) -> str:
    kinds = [transport.whatami for transport in session.info.transports()]
    relays = kinds.count(zenoh.WhatAmI.ROUTER)
    up = timedelta(seconds=int(time.monotonic() - started))
    refused = "".join(f", refused {number}: {reason}" for reason, number in forwarder.refused.most_common())
    return f"up {up}, {_counted(len(kinds) - relays, 'node')}, {_counted(relays, 'other relay')}{refused}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
