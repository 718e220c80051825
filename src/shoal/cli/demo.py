"""`shoal demo`: a pretrained model before and after three minutes of training, and a swarm in a folder."""

import argparse
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from shoal.cli.commons import run_commons
from shoal.cli.flags import add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.display.text import print_paragraph
from shoal.errors import UserError
from shoal.runs.folder import CONFIG

HELP = """Trains two copies of a small pretrained model on "Which is larger, 36 or 39?" for some three minutes. Shows
what it answers before and after. It is `shoal run` with fixed settings.

  shoal demo
  shoal demo --model my-model/ --threads 2
  shoal demo commons        nodes that never meet learn from each other through a folder; no network"""
MODEL: Final = "smollm2"
SETTINGS: Final[dict[str, Any]] = {
    "rounds": 36,
    "tasks": {"sources": [{"name": "larger"}], "partial_credit": True},
    "policy": {"model": [MODEL], "max_completion_length": 8},
    "learner": {"learning_rate": 1e-5},
    "round": {"nodes": 2},
    "evaluation": {"every": 12, "questions": 48, "samples": 1},
}
"""Chosen on the seeds 0 and 101 to 103. docs/start/demo.md has others, too."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("what", nargs="?", choices=["commons"], help="another demo")
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/DATE-TIME)")
    defaults = {"policy.model": MODEL, "rounds": str(SETTINGS["rounds"])}
    add_settings(parser, ["policy.model", "seed", "threads", "rounds"], defaults=defaults)


def command(args: argparse.Namespace) -> int:
    given = given_settings(args)
    settings = merged(SETTINGS, given)
    config = config_of(None, settings, allow_code=False)
    from shoal.cli.session import run_session
    from shoal.runs.session import new_folder  # torch, only now

    out = args.out or new_folder()
    if args.what:
        if given.keys() - {"seed"}:
            raise UserError("shoal demo commons takes --seed and --out alone")
        return run_commons(out, config.seed)
    models = " and ".join(config.policy.model)
    text = f"Two copies of {models} learn from what both try. `shoal run --config {out / CONFIG}` does the same.\n"
    print_paragraph(Console(highlight=False), text, 0)
    return run_session(config, out)
