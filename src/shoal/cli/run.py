"""`shoal run`: a swarm in one process."""

from __future__ import annotations

import argparse
from pathlib import Path

from shoal.cli.flags import add_allow_code, add_own_code, add_settings, config_of, given_settings
from shoal.config.settings import Config
from shoal.errors import UserError

HELP = """Trains a swarm of language models in this process. Each node answers questions, shares what it tried,
and learns from its own rollouts and from the others'.

  shoal run                                   four guppies on easy tasks, a minute or two
  shoal run --model HuggingFaceTB/SmolLM2-135M-Instruct --suite paper --nodes 2
  shoal run --task my_tasks:Larger            questions of your own (examples/own_task.py)
  shoal run --model A --model B               nodes with different models
  shoal run --model guppy --model http://localhost:8080/v1    the second answers and never learns
  shoal run --config runs/one/config.toml     the same run again
  shoal run --resume runs/one                 goes on where a run ended or was killed

Settings can also stand in a TOML file (--config FILE); flags go over the file."""

RESUMABLE = {"rounds", "threads", "checkpoint_every"}
"""Settings that a resumed run may change."""
WITHOUT = ("network.",)
"""The section that is for `shoal join`."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_run_arguments(parser)
    add_settings(parser, without=(*WITHOUT, "evaluation.judges"))
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
    config = resumed(args, set(given) - RESUMABLE) if args.resume else config_of(args.config, given, args.allow_code)
    from shoal.cli.session import run_session

    return run_session(config, args.out, args.resume, args.quiet)


def resumed(args: argparse.Namespace, fixed: set[str]) -> Config:
    """The settings of the run that is resumed. Raises `UserError` if others were given, such as those in `fixed`."""
    if args.config or args.out:
        raise UserError("--resume takes all settings from its folder; leave out --config and --out")
    if fixed:
        raise UserError(
            f"a resumed run keeps its settings: {', '.join(sorted(fixed))} cannot change, only "
            f"{', '.join(sorted(RESUMABLE))} can"
        )
    source = args.resume / "config.toml"
    return config_of(source, given_settings(args), args.allow_code) if source.exists() else Config()
