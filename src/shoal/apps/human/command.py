"""`shoal human`: a page in which a person joins a swarm, and a door for programs that answer."""

from __future__ import annotations

import argparse
from contextlib import closing
from pathlib import Path

from shoal.apps.watch import host
from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.errors import UserError

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
]

TAKEN = (
    *("version", "tasks.suite", "tasks.only", "tasks.tasks", "tasks.held_out", "tasks.partial_credit"),
    *("policy.max_completion_length", "network.swarm", "network.connect"),
)
"""What is taken from somebody else's configuration: what a swarm's nodes have in common. Nothing of it names a file of
this machine, opens a port or rewards anything."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal human`."""
    parser.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="relays or nodes to reach: HOST:PORT")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings of a node of this swarm (config.toml)")
    add_allow_code(parser)
    host.add_arguments(parser, LISTEN)
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
        import uvicorn  # noqa: F401

        from shoal.apps.human.server import make_app
    except ImportError as error:
        raise UserError(f"the page needs {error.name}: pip install 'shoal[watch]'") from None
    from shoal.apps.human.contributor import Contributor
    from shoal.identity.keys import identity_path

    given = merged(given_settings(args), {"swarm": {"nodes": 1}})
    if args.endpoints:
        given = merged(given, {"network": {"connect": args.endpoints}})
    config = config_of(args.config, given, args.allow_code, TAKEN)
    home = args.home or identity_path().parent / "human"
    with host.opened_place(args, LISTEN) as place, closing(Contributor(config, home, args.kind, args.model)) as one:
        what = f"{one.identity.name} in {one.swarm}: answer"
        return host.serve(make_app(one, place.access), place, what, show=not args.no_open)
