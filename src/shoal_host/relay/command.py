"""`shoal relay`: runs a relay and shows how it stands."""

import argparse
import ipaddress
import math
import signal
import threading
from pathlib import Path

from rich.console import Console
from rich.text import Text

from shoal.errors import UserError
from shoal.transports.zenoh.session import MAX_MESSAGE, TransportOptions
from shoal_host.addresses import address_of
from shoal_host.relay.forwarder import Limits
from shoal_host.relay.relay import Relay, RelayOptions

HELP = "Carries a swarm's messages between nodes that cannot reach each other."
LISTEN = "tcp/0.0.0.0:7447"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal relay`."""
    parser.add_argument(
        "--listen", action="append", metavar="ENDPOINT", help=f"where nodes connect; may be repeated (default {LISTEN})"
    )
    parser.add_argument(
        "--connect",
        action="append",
        default=[],
        metavar="ENDPOINT",
        help="another relay to know, which has this one's address in its --exempt; may be repeated",
    )
    parser.add_argument("--certificate", type=Path, metavar="PEM", help="certificate of this relay, for tls/")
    parser.add_argument("--key", type=Path, metavar="PEM", help="private key of the certificate")
    parser.add_argument(
        "--ca", type=Path, metavar="PEM", help="certificate of the authority that signed others' certificates"
    )
    parser.add_argument("--mutual", action="store_true", help="accept only nodes that show a certificate of --ca")
    parser.add_argument("--max-sessions", type=int, default=1000, help="connections at a time (default 1000)")
    parser.add_argument(
        "--address-sessions",
        type=int,
        default=64,
        help="connections at a time from one address, or IPv6 network /64 (default 64)",
    )
    parser.add_argument(
        "--exempt",
        action="append",
        default=[],
        metavar="ADDRESS",
        help="IP address of another relay, which may connect and is trusted: nothing from there is read or limited; "
        "may be repeated",
    )
    parser.add_argument(
        "--max-bytes", type=int, default=MAX_MESSAGE // 2, help=f"bytes of one message (default {MAX_MESSAGE // 2})"
    )
    parser.add_argument(
        "--status-every", type=float, default=5.0, metavar="SECONDS", help="between status lines (default 5)"
    )


def command(args: argparse.Namespace) -> int:
    """Runs `shoal relay` until SIGINT or SIGTERM; returns the exit code."""
    if args.max_sessions < 1 or not 1024 <= args.max_bytes <= MAX_MESSAGE or not 0 < args.status_every < math.inf:
        raise UserError(f"--max-sessions and --status-every must be above 0, --max-bytes from 1024 to {MAX_MESSAGE}")
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
    _run(RelayOptions(transport, limits, args.max_bytes), args.status_every)
    return 0


def _run(options: RelayOptions, interval: float) -> None:
    stop = threading.Event()
    previous = {number: signal.signal(number, lambda *_: stop.set()) for number in (signal.SIGINT, signal.SIGTERM)}
    console = Console(highlight=False, soft_wrap=True)
    endpoints = options.transport.listen
    try:
        with Relay(options) as relay:
            console.print(Text(f"relay on {', '.join(endpoints)}; stop with Ctrl-C"))
            if console.is_interactive:
                with console.status("") as line:
                    while not stop.wait(min(interval, 1.0)):
                        line.update(Text(relay.status()))
            else:
                while not stop.wait(interval):
                    console.print(Text(relay.status()))
            console.print(Text(f"stopped; {relay.status()}"))
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _address(text: str) -> str:
    try:
        return address_of(str(ipaddress.ip_address(text)))
    except ValueError:
        raise UserError(f"--exempt {text}: write an IP address, as 203.0.113.7 or 2001:db8::7") from None
