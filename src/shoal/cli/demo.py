"""`shoal demo`: a pretrained model before and after three minutes of training."""

import argparse
import shlex
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from shoal.cli.flags import add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.config.names import flag_of
from shoal.config.sections import settings_of
from shoal.config.settings import Config
from shoal.display.text import print_paragraph

HELP = """Trains two copies of a small pretrained model on "Which is larger, 36 or 39?" for some three minutes. Shows
what it answers before and after. It is `shoal run` with fixed settings, which it prints.

  shoal demo
  shoal demo --model my-model/ --threads 2"""
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
ASK: Final = "Which is larger, 17 or 71? Answer with the number only."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--out", type=Path, metavar="DIR", help="the run's folder (default: runs/DATE-TIME)")
    defaults = {"policy.model": MODEL, "rounds": str(SETTINGS["rounds"])}
    add_settings(parser, ["policy.model", "seed", "threads", "rounds"], defaults=defaults)


def command(args: argparse.Namespace) -> int:
    settings = merged(SETTINGS, given_settings(args))
    config = config_of(None, settings, allow_code=False)
    from shoal.cli.session import Options, run_session
    from shoal.runs.session import new_folder  # torch, only now

    out = args.out or new_folder()
    console = Console(highlight=False)
    models = " and ".join(config.policy.model)
    print_paragraph(console, f"Two copies of {models} learn from what both try. This does the same:", 0)
    console.print(f"  {as_command(settings)} --out {shlex.quote(str(out))}\n", markup=False, soft_wrap=True)
    return run_session(config, Options(out, question=ASK))


def as_command(settings: dict[str, Any]) -> str:
    """`shoal run` with these nested settings as flags."""
    words = ["shoal", "run"]
    for name, _ in settings_of(Config):
        section, _, leaf = name.rpartition(".")
        inside = settings.get(section, {}) if section else settings
        if name == "tasks.sources":
            words += [word for task in inside.get(leaf, []) for word in ("--task", task["name"])]
        elif leaf in inside and not isinstance(inside[leaf], dict):
            values = inside[leaf] if isinstance(inside[leaf], list) else [inside[leaf]]
            words += [word for value in values for word in (flag_of(name), _as_text(value))]
    return shlex.join(words)


def _as_text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
