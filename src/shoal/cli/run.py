"""`shoal run`: a swarm in one process."""

import argparse
from pathlib import Path
from typing import Any

from shoal.cli.flags import add_allow_code, add_files, add_own_code, add_settings, config_of, given_settings
from shoal.config.load import resumed_config
from shoal.config.settings import Config
from shoal.errors import UserError

HELP = """Trains a swarm of language models in this process. Each node answers questions, shares what it tried,
and learns from its own rollouts and those of its peers.

  shoal run                                   four guppies on easy tasks, a minute or two
  shoal run --model smollm2 --suite reef --nodes 2
  shoal run questions.xlsx                    questions and right answers of your own: a quarter of an hour
  shoal run --data openai/gsm8k               a data set on the Hub
  shoal run --data prompts.jsonl --reward my.py:score    one without right answers
  shoal run --model guppy --model http://localhost:8080/v1    the second answers and never learns
  shoal run --resume runs/one                 goes on where a run ended or was killed

Settings can also stand in a TOML file (--config FILE); flags go over the file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    ask = "how data are asked: auto finds out; plain, or a way of `shoal probe`"
    parser.add_argument("--ask", default="auto", metavar="WAY", help=ask)
    add_run_arguments(parser)
    add_settings(parser, without=("network.", "evaluation.judges"))  # they are for `shoal join`
    add_own_code(parser)


def add_run_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments that `run` and `join` share, beside the settings."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings from a TOML file")
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the run in this folder")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/DATE-TIME)")
    add_allow_code(parser)
    parser.add_argument("--quiet", action="store_true", help="print the result alone")


def command(args: argparse.Namespace) -> int:
    given = given_settings(args)
    if args.resume and args.ask != "auto":
        raise UserError("a resumed run keeps its way of asking: leave out --ask")
    config = resumed(args, given) if args.resume else config_of(args.config, given, args.allow_code)
    from shoal.cli.session import run_session

    return run_session(config, args.out, args.resume, args.quiet, ask=args.ask)


def resumed(args: argparse.Namespace, given: dict[str, Any], network: bool = False) -> Config:
    """The settings of the run that is resumed, with those that were `given`. Raises `UserError`."""
    if args.config or args.out:
        raise UserError("--resume takes all settings from its folder; leave out --config and --out")
    return resumed_config(args.resume, given, args.allow_code, network)
