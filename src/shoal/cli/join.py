"""`shoal join`: one node of a swarm of many machines."""

import argparse

from shoal.cli.flags import add_own_code, add_settings, config_of, given_settings
from shoal.cli.run import add_run_arguments, resumed
from shoal.cli.swarms import by_invitation, swarm_settings
from shoal.config.load import merged
from shoal.config.settings import ENDLESS

HELP = """Trains one node in a swarm of many machines. It answers questions, shares what it tried under its own key
(`shoal id`), and learns from its own rollouts and from those of nodes that it need not trust.

  shoal join --swarm lagoon                            finds nodes on the local network
  shoal join relay.example.org:7447 --swarm lagoon     reaches them through a relay (`shoal relay`)
  shoal join HOST:PORT --swarm lab --secret-file FILE  a private swarm
  shoal join /mnt/shared --transport folder            through a folder that all nodes see
  shoal join SHOAL:INVITATION                          the line that `shoal host` prints: relay, tasks, judge, secret
  shoal join --show SHOAL:INVITATION                   everything that it says; joins nothing
  shoal join --resume runs/one                         goes on where a node ended or was killed

Training never waits for the network: without peers it trains alone. `shoal status` shows its state. Settings can also
stand in a TOML file (--config FILE); flags go over the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "endpoints",
        nargs="*",
        metavar="ENDPOINT",
        help="whom to reach: HOST:PORT, tls/HOST:PORT; or a folder, or an invitation",
    )
    add_run_arguments(parser)
    parser.add_argument("--show", action="store_true", help="only show what an invitation says")
    add_settings(parser, without=("round.nodes", "network.connect"), defaults={"rounds": "until it is stopped"})
    add_own_code(parser)


def command(args: argparse.Namespace) -> int:
    given = given_settings(args)
    if args.show:
        by_invitation("show", args.endpoints)
        return 0
    given = swarm_settings(args.endpoints, given, args.quiet)
    if args.resume:
        config = resumed(args, given, network=True)
    else:
        given = merged(given, {"round": {"nodes": 1}})
        config = config_of(args.config, given, args.allow_code, below={"rounds": ENDLESS})
    from shoal.cli.session import run_session

    return run_session(config, args.out, args.resume, args.quiet, joins=True)
