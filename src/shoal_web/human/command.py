"""`shoal human`: a page on which a person joins a swarm, and an API for programs that answer."""

import argparse
from contextlib import closing
from pathlib import Path

from shoal.cli.flags import add_allow_code, add_settings, config_of, given_settings
from shoal.cli.swarms import swarm_settings
from shoal.config.load import merged
from shoal.identity.keys import identity_path
from shoal_web.human.contributor import Contributor
from shoal_web.human.server import make_app
from shoal_web.serving import server

HELP = """Opens a page on which you join a swarm: you answer questions, see the scores, and see which nodes learned from
you. Your answers are signed and admitted like any node's. Programs can answer at the same address
(docs/guides/human.md).

  shoal human                                    find nodes on the local network
  shoal human relay.example.org:7447 --swarm lagoon
  shoal human SHOAL:INVITATION                   the line that `shoal host` prints
  shoal human HOST:PORT --suite paper            the tasks must be those of the swarm
  shoal human HOST:PORT --kind program --model my-solver --no-open

Only this machine can open the page, unless you give --listen: then it asks for a token, which it prints. The page is
not encrypted: outside a network that you trust, put it behind TLS."""
LISTEN = "127.0.0.1:8401"
SHARED = (
    *("tasks.suite", "tasks.only", "tasks.examples", "tasks.answer", "tasks.partial_credit"),
    *("policy.max_completion_length", "network.name"),
)
SETTINGS = [*SHARED, *(f"network.{name}" for name in ("transport", "display_name", "secret_file", "tls"))]
TAKEN = (*SHARED, "tasks.sources", "network.connect")
"""The settings that are taken from somebody else's configuration: those that the nodes of a swarm share. None of them
opens a port, sets a reward, or names a file of this machine other than a data set."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The flags of `shoal human`."""
    parser.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="relays or nodes: HOST:PORT; or an invitation")
    parser.add_argument("--config", type=Path, metavar="FILE", help="config.toml of a node of this swarm")
    add_allow_code(parser)
    server.add_arguments(parser, LISTEN)
    parser.add_argument("--home", type=Path, metavar="DIR", help="folder of identity and journal (default: human/)")
    parser.add_argument("--kind", choices=["human", "program"], default="human", help="who answers, for others to know")
    parser.add_argument("--model", metavar="NAME", help="name of the program, for others to know")
    add_settings(parser, SETTINGS)


def command(args: argparse.Namespace) -> int:
    """`shoal human`."""
    given = given_settings(args)
    given = merged(swarm_settings(args.endpoints, given), {"round": {"nodes": 1}})
    config = config_of(args.config, given, args.allow_code, TAKEN)
    home = args.home or identity_path().parent / "human"
    with server.opened_place(args, LISTEN) as place, closing(Contributor(config, home, args.kind, args.model)) as one:
        what = f"{one.identity.name} in {one.swarm}: answer"
        return server.serve(make_app(one, place.access), place, what, show=not args.no_open)
