"""`shoal relay`: runs a relay and shows how it stands."""

import argparse
import ipaddress
import math
import threading
from pathlib import Path

from shoal.errors import UserError
from shoal.signals import on_stop
from shoal.transports.zenoh.session import TransportOptions
from shoal_host.addresses import address_of
from shoal_host.relay.forwarder import Limits
from shoal_host.relay.relay import running_relay

HELP = "Carries a swarm's messages between nodes that cannot reach each other."
LISTEN = "tcp/0.0.0.0:7447"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal relay`."""
    limits, add = Limits(), parser.add_argument
    add("--listen", action="append", metavar="ENDPOINT", help=f"where nodes connect; repeatable (default {LISTEN})")
    known = "another relay to know, which has this one's address in its --exempt; repeatable"
    add("--connect", action="append", default=[], metavar="ENDPOINT", help=known)
    add("--certificate", type=Path, metavar="PEM", help="certificate of this relay, for tls/")
    add("--key", type=Path, metavar="PEM", help="private key of the certificate")
    add("--ca", type=Path, metavar="PEM", help="certificate of the authority that signed others' certificates")
    add("--mutual", action="store_true", help="accept only nodes that show a certificate of --ca")
    trusted = "IP address of another relay, which may connect: nothing from there is read or limited; repeatable"
    add("--exempt", action="append", default=[], metavar="ADDRESS", help=trusted)
    for flag, default, text in (
        ("--max-sessions", limits.sessions, "connections at a time"),
        ("--address-sessions", limits.address_sessions, "connections at a time from one address, or IPv6 network /64"),
        ("--status-every", 60.0, "seconds between status lines"),
    ):
        add(flag, type=type(default), default=default, metavar="N", help=f"{text} (default {default:g})")


def command(args: argparse.Namespace) -> int:
    """Runs `shoal relay` until SIGINT or SIGTERM; returns the exit code."""
    if min(args.max_sessions, args.address_sessions) < 1 or not 0 < args.status_every < math.inf:
        raise UserError("--max-sessions, --address-sessions and --status-every must be above 0")
    transport = TransportOptions(
        connect=tuple(args.connect),
        listen=tuple(args.listen or [LISTEN]),
        ca=args.ca,
        certificate=args.certificate,
        key=args.key,
        mutual=args.mutual,
    )
    exempt = frozenset(_address(text) for text in args.exempt)
    limits = Limits(args.max_sessions, args.address_sessions, exempt)
    stop = threading.Event()
    with on_stop(stop.set), running_relay(transport, limits) as status:
        print(f"relay on {', '.join(transport.listen)}; stop with Ctrl-C", flush=True)
        while not stop.wait(args.status_every):
            print(status(), flush=True)
        print(f"stopped; {status()}")
    return 0


def _address(text: str) -> str:
    try:
        return address_of(str(ipaddress.ip_address(text)))
    except ValueError:
        raise UserError(f"--exempt {text}: write an IP address, as 203.0.113.7 or 2001:db8::7") from None
