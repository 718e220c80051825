"""`shoal probe`: how a model is best asked, before it is trained."""

import argparse
import math
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import tomli_w
from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.config.settings import CONFIG_VERSION, Config
from shoal.display.text import print_next
from shoal.errors import UserError
from shoal.tasks.data.spec import ENDING, preset_of
from shoal_extras.probe.before import SECONDS, asked, prepare
from shoal_extras.probe.probe import Found

__all__ = ["HELP", "add_arguments", "command", "prepare"]

HELP = """Asks a model the questions of each task in several ways, with and without worked examples. For each way it
says how many answers are right, how many are in the form, and how many groups of G answers teach something. A group
whose answers are all right or all wrong teaches nothing. It takes about two minutes and uses training questions alone.
What it finds is kept, and `shoal run` with the same questions and model asks in the best way.

  shoal probe questions.xlsx                      smollm2, asked questions of your own
  shoal probe questions.xlsx --model models/small.gguf
  shoal probe guppy
  shoal probe models/small.gguf --suite paper --write my.toml
  shoal run --config my.toml"""
LEGEND = """right: share of right answers. form: answers that have an answer in this form. cut: answers that ran into
the longest length. live: groups of answers to one question that teach something. *: recommended."""
FROM_FILE = ("seed", "threads", "tasks", "policy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    words = "data sets; before them a model: a name on the Hub, folder, GGUF file, endpoint or guppy"
    parser.add_argument("files", nargs="*", metavar="FILE", help=words)
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks and settings from a TOML file")
    add_allow_code(parser)
    add_data(parser)
    parser.add_argument("--seconds", type=float, default=SECONDS, metavar="N", help="how long to ask (default: 90)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write what is recommended as a configuration")
    names = ["model", "num_generations", "max_completion_length", "temperature", "top_p", "device", "dtype", "engine"]
    add_settings(parser, ["seed", "threads", "tasks.suite", "tasks.only", *(f"policy.{name}" for name in names)])


def command(args: argparse.Namespace) -> int:
    """`shoal probe`."""
    from shoal.runs.data import check_data

    config = config_of(args.config, _given(args), args.allow_code, FROM_FILE)
    if not 0 < args.seconds < math.inf:
        raise UserError("--seconds must be above 0")
    if config.policy.num_generations < 2:
        raise UserError("a group needs two answers or more: --num-generations 8")
    if args.write and args.write.exists():
        raise UserError(f"{args.write} exists: choose another name, or remove it")
    check_data(config, trains=True)
    console = Console(highlight=False)
    model = config.policy.model[0]
    found = asked(config, model, console, args.seconds)
    console.print(_table(found.ways, found.best, model))
    console.print(LEGEND.replace("\n", " "))
    best = found.best
    if found.known:
        console.print("as found before; questions, model and settings are the same")
    if not best:
        raise UserError(_advice(found.ways))
    if left_out := [label for label in found.ways if label not in best]:
        console.print(f"nothing to learn from in: {', '.join(left_out)}", markup=False, soft_wrap=True)
    words, why = ["shoal", *args.words, "--write", "my.toml"], "keep this as a configuration"
    if args.write:
        from shoal_extras.probe.finding import asked_so

        _write(args.write, asked_so(config, found), best)
        words = ["shoal", "run", "--config", str(args.write), *["--allow-code"] * bool(config.code)]
        why = "train the model, asked in these ways"
    print_next(console, {shlex.join(words): why})
    return 0


def _given(args: argparse.Namespace) -> dict[str, Any]:
    """The settings that were given. The first word is a model unless it is a data set or a flag names the model."""
    first = args.files[0] if args.files else ""
    if not first or is_data(first) or "policy.model" in args:
        return given_settings(args)
    args.files = args.files[1:]
    return merged(given_settings(args), {"policy": {"model": [first]}})


def is_data(word: str) -> bool:
    """Whether a word without a flag is a data set, and not a model."""
    path = word.partition(",")[0]
    folder = Path(path).is_dir() and not Path(path, "config.json").exists()
    return folder or bool(preset_of(path)) or re.search(ENDING, path) is not None


def _table(found: Mapping[str, Sequence[Found]], best: Mapping[str, Found], model: str) -> Table:
    first = next(iter(found.values()))[0]
    count = max(len(one.right) for ways in found.values() for one in ways)
    title = f"{model}: up to {count} question{'s' * (count != 1)} in each way, {first.G} answers to each"
    table = Table(title=Text(title, "table.title"), box=None)
    table.add_column("task, and how it is asked", no_wrap=True)
    for name in ("asked", "right", "95 %", "form", "tokens", "cut", "live"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, ways in found.items():
        table.add_row(Text(label, style="bold"))
        for one in ways:
            right, chosen = one.pass_at_1, best.get(label) is one
            row = [f"{'*' if chosen else ' '} {one.way.name}", str(len(one.right))]
            row += [f"{right.value:.2f}", f"{right.low:.2f}-{right.high:.2f}", f"{one.in_form_share:.2f}"]
            row += [f"{fmean(one.lengths):.0f}" if one.lengths else "", f"{one.cut_share:.2f}", f"{one.live_share:.2f}"]
            table.add_row(*row, style="green" if chosen else "")
        table.add_section()
    return table


def _advice(found: Mapping[str, Sequence[Found]]) -> str:
    """Why nothing can be learned, and what to do."""
    all_found = [one for ways in found.values() for one in ways]
    if all(one.pass_at_1.value == 1 for one in all_found):
        return "every answer is right: choose harder tasks"
    if fmean(one.cut_share for one in all_found) > 0.9:
        return "no group teaches anything, and nearly every answer is cut: raise --max-completion-length"
    return (
        "no group of answers teaches anything: choose easier tasks or a larger model, or give your own task partial "
        "credit in steps (tasks.partial_credit, docs/guides/tasks.md)"
    )


def _write(file: Path, config: Config, best: Mapping[str, Found]) -> None:
    """A configuration with the tasks that can teach something, each asked in its best way."""
    decoding = {"model", "num_generations", "max_completion_length", "temperature", "top_p"}
    settings = config.model_dump(include={"policy": decoding})
    sources = [one.spec.model_dump(exclude_defaults=True) for one in best.values()]
    settings["tasks"] = {"partial_credit": config.tasks.partial_credit, "sources": sources}
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(tomli_w.dumps({"version": CONFIG_VERSION, **settings}))
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror or error}") from error
