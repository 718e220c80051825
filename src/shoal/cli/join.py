"""`shoal join`: one node of a swarm of many machines."""

import argparse
from pathlib import Path
from typing import Any

from shoal.cli.flags import add_own_code, add_settings, config_of, given_settings
from shoal.cli.run import add_run_arguments, resumed
from shoal.cli.swarms import by_invitation, is_invitation, swarm_settings
from shoal.config.load import merged, read_config
from shoal.config.settings import ENDLESS
from shoal.errors import UserError
from shoal.runs.folder import CONFIG

HELP = """Trains one node in a swarm of many machines. It answers questions, shares what it tried under its own key
(`shoal id`), and learns from its own rollouts and from those of nodes that it need not trust.

  shoal join --swarm lagoon                            finds nodes on the local network
  shoal join relay.example.org:7447 --swarm lagoon     reaches them through a relay (`shoal relay`)
  shoal join HOST:PORT --swarm lab --secret-file FILE  a private swarm
  shoal join /mnt/shared                               through a folder, or s3://, hf://, ssh:// (docs/guides/place.md)
  shoal join SHOAL:INVITATION                          the line that `shoal host` prints: relay, tasks, judge, secret
  shoal join --show SHOAL:INVITATION                   everything that it says; joins nothing
  shoal join --resume runs/one                         goes on where a node ended or was killed, with its model
  shoal join SHOAL:INVITATION --resume runs/one        the same, at the addresses of a new invitation of its swarm

Training never waits for the network: without peers it trains alone. `shoal status` shows its state. Settings can also
stand in a TOML file (--config FILE); flags go over the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("endpoints", nargs="*", metavar="ENDPOINT", help="HOST:PORT, a folder, a URL or an invitation")
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
        if any(map(is_invitation, args.endpoints)):
            given = _invited_again(args.resume, given, given_settings(args))
        config = resumed(args, given, network=True)
    else:
        given = merged(given, {"round": {"nodes": 1}})
        config = config_of(args.config, given, args.allow_code, below={"rounds": ENDLESS})
    from shoal.cli.session import run_session

    return run_session(config, args.out, args.resume, args.quiet, joins=True)


def _invited_again(folder: Path, invited: dict[str, Any], typed: dict[str, Any]) -> dict[str, Any]:
    """The settings `typed`, with the swarm's place by an invitation. Raises `UserError` for another swarm or tasks."""
    if not (folder / CONFIG).exists():
        raise UserError(f"{folder} is not the folder of a run (it has no {CONFIG}): nothing to resume")
    kept = read_config(folder / CONFIG)
    name, theirs = kept.get("network", {}).get("name"), invited["network"]["name"]
    tasks, asked = kept.get("tasks", {}), invited["tasks"]
    differs = f"trains in the swarm {name!r}, and this invitation is to {theirs!r}" if name != theirs else ""
    if not differs and (tasks.get("suite"), tasks.get("only")) != (asked["suite"], list(asked["only"])):
        differs = "trains on other tasks than this invitation asks for"
    if differs:
        raise UserError(
            f"the node in {folder} {differs}: its model stays as it is; join anew without --resume, from its model by "
            f"--model {folder}/checkpoints/ROUND/NODE if you like"
        )
    return merged(typed, {"network": invited["network"]})
