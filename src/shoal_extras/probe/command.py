"""`shoal probe`: how a model is best asked, before it is trained."""

import argparse
import math
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, quantiles

import tomli_w
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.config.load import merged
from shoal.config.settings import CONFIG_VERSION, Config
from shoal.display.text import print_next
from shoal.errors import UserError
from shoal_extras.probe.probe import Found, probe, recommend

HELP = """Asks a model the questions of each task in several ways, with and without worked examples. For each way it
says how many answers are right, how many are in the form, and how many groups of G answers teach something. A group
whose answers are all right or all wrong teaches nothing. It takes about two minutes and uses training questions alone.

  shoal probe guppy
  shoal probe models/small.gguf --suite paper --write my.toml
  shoal run --config my.toml"""
LONGEST = 48
"""Tokens of an answer, unless the user says otherwise: what is learned here starts with short answers."""
LEGEND = """right: share of right answers. in form: answers that have an answer in this form. cut: answers that ran into
the longest length. live: groups of answers to one question that teach something. *: recommended."""
FROM_FILE = ("seed", "threads", "tasks", "policy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("model", metavar="MODEL", help="a name on the Hub, folder, GGUF file, endpoint or guppy")
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks and settings from a TOML file")
    add_allow_code(parser)
    add_data(parser)
    parser.add_argument("--seconds", type=float, default=90.0, metavar="N", help="how long to ask (default: 90)")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write what is recommended as a configuration")
    decoding = ["num_generations", "max_completion_length", "temperature", "top_p", "device", "dtype", "engine"]
    add_settings(parser, ["seed", "threads", "tasks.suite", "tasks.only", *(f"policy.{name}" for name in decoding)])


def command(args: argparse.Namespace) -> int:
    """`shoal probe`."""
    from shoal.runs.data import check_data

    given = merged(given_settings(args), {"policy": {"model": [args.model]}})
    config = config_of(args.config, given, args.allow_code, FROM_FILE)
    if not 0 < args.seconds < math.inf:
        raise UserError("--seconds must be above 0")
    if config.policy.num_generations < 2:
        raise UserError("a group needs two answers or more: --num-generations 8")
    if args.write and args.write.exists():
        raise UserError(f"{args.write} exists: choose another name, or remove it")
    if config.policy.max_completion_length == "auto":
        config.policy.max_completion_length = LONGEST
    check_data(config, trains=True)
    console = Console(highlight=False)
    found = _asked(config, args, console)
    best = recommend(found)
    console.print(_table(found, best, args.model))
    console.print(LEGEND.replace("\n", " "))
    if not best:
        raise UserError(_advice(found))
    if args.write:
        _write(args.write, config, best)
    if left_out := [label for label in found if label not in best]:
        console.print(f"nothing to learn from in: {', '.join(left_out)}", markup=False, soft_wrap=True)
    if args.write:
        words = ["shoal", "run", "--config", str(args.write), *(["--allow-code"] if config.code else [])]
        print_next(console, {shlex.join(words): "train the model, asked in these ways"})
    else:
        again = shlex.join(["shoal", *args.words, "--write", "my.toml"])
        print_next(console, {again: "keep this as a configuration"})
    return 0


def _asked(config: Config, args: argparse.Namespace, console: Console) -> dict[str, list[Found]]:
    from shoal.runs.models import build_policy  # torch, only now

    with console.status(Text(f"loading {args.model}")):
        policy = build_policy(config, args.model)
    with Progress(console=console, transient=True) as progress:
        line = progress.add_task("asking; Ctrl-C ends it with what is known", total=args.seconds)

        def on_progress(questions: int, spent: float) -> None:
            progress.update(line, completed=spent, description=f"asked {_questions(questions)}")

        return probe(policy, config.tasks, config.policy.num_generations, args.seconds, config.seed, on_progress)


def _questions(count: int) -> str:
    return f"{count} question{'s' * (count != 1)} of each task in each way"


def _table(found: Mapping[str, Sequence[Found]], best: Mapping[str, Found], model: str) -> Table:
    first = next(iter(found.values()))[0]
    title = f"{model}: {_questions(len(first.right))}, {first.G} answers to each"
    table = Table(title=Text(title, "table.title"), box=None)
    table.add_column("task, and how it is asked", no_wrap=True)
    for name in ("right", "95 %", "in form", "tokens", "cut", "live"):
        table.add_column(name, justify="right", no_wrap=True)
    for label, ways in found.items():
        table.add_row(Text(label, style="bold"))
        for one in ways:
            right, chosen = one.pass_at_1, best.get(label) is one
            table.add_row(
                f"{'*' if chosen else ' '} {one.way.name}",
                f"{right.value:.2f}",
                f"{right.low:.2f}-{right.high:.2f}",
                f"{one.in_form_share:.2f}",
                f"{fmean(one.lengths):.0f}" if one.lengths else "",
                f"{one.cut_share:.2f}",
                f"{one.live_share:.2f}",
                style="green" if chosen else "",
            )
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
    lengths = sorted(length for one in best.values() for length in one.lengths)
    if len(lengths) > 1:  # as long as nearly all of these answers need
        needed = 8 * (int(quantiles(lengths, n=20)[-1]) // 8 + 1)
        config.policy.max_completion_length = min(int(config.policy.max_completion_length), needed)
    decoding = {"model", "num_generations", "max_completion_length", "temperature", "top_p"}
    settings = config.model_dump(include={"policy": decoding})
    sources = [one.spec.model_dump(exclude_defaults=True) for one in best.values()]
    settings["tasks"] = {"partial_credit": config.tasks.partial_credit, "sources": sources}
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(tomli_w.dumps({"version": CONFIG_VERSION, **settings}))
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror or error}") from error
