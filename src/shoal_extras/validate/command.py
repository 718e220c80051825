"""The command `shoal validate`."""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.errors import UserError
from shoal.untrusted import json_safe, printable
from shoal_extras.validate.gold import Validated, validate

HELP = """Scores the right answers of each task with the task's own scorer: all must get 1. Scores answers that ignore
the question, too: the best one answer to all questions, and the right answer to another question. What these get is
what a model can get without reading. Exits with 1 if a right answer does not get 1.

  shoal validate --data questions.jsonl
  shoal validate --suite reef
  shoal validate --task my_tasks:Larger --questions 1000"""
FROM_FILE = ("seed", "tasks")
SHOWN = 3
"""Right answers of a task that are shown because they do not get 1."""
QUOTED = 90


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks from a TOML file")
    add_allow_code(parser)
    add_data(parser)
    parser.add_argument("--questions", type=int, default=200, metavar="N", help="of each task (default: 200)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, ["seed", "tasks.suite", "tasks.only", "tasks.answer"])


def command(args: argparse.Namespace) -> int:
    """`shoal validate`."""
    if args.questions < 1:
        raise UserError("--questions is at least 1")
    config = config_of(args.config, given_settings(args), args.allow_code, FROM_FILE)
    from shoal.tasks import Tasks

    Tasks(config.tasks)  # reads data sets before the line below is shown
    console = Console(stderr=args.json, highlight=False)
    with console.status("validating") as status:

        def hear(label: str) -> None:
            status.update(Text(f"validating {label}"))

        found = validate(config.tasks, args.questions, config.seed, hear)
    wrong = any(one.wrong for one in found.values())
    if args.json:
        print(json.dumps(json_safe({label: _object(one) for label, one in found.items()})))
        return int(wrong)
    console.print(_table(found))
    for label, one in found.items():
        for each in one.wrong[:SHOWN]:
            why = f" ({each.why})" if each.why else ""
            say = f"{label}: the right answer {printable(each.answer, 40)!r} gets {each.score:g}{why}: "
            console.print(Text(say + printable(each.question.shown, QUOTED), style="red"), soft_wrap=True)
    unknown = [label for label, one in found.items() if not one.answered]
    if unknown:
        console.print(Text(f"no right answers are known of: {', '.join(unknown)}"), soft_wrap=True)
    if not wrong and len(unknown) < len(found):
        console.print("Every right answer is right.")
    return int(wrong)


def _table(found: Mapping[str, Validated]) -> Table:
    table = Table(box=None)
    table.add_column("task", no_wrap=True)
    for name in ("questions", "right answers that get 1", "best one answer", "another's answer"):
        table.add_column(name, justify="right")
    for label, one in found.items():
        best = "" if one.constant is None else f"{one.constant:.3f} ({printable(one.constant_answer, 16)})"
        gold = "" if one.gold is None else f"{one.answered - len(one.wrong)} of {one.answered}"
        others = "" if one.others is None else f"{one.others:.3f}"
        style = "red" if one.wrong else ""
        table.add_row(*map(Text, (label, str(one.questions), gold, best, others)), style=style)
    return table


def _object(one: Validated) -> dict[str, Any]:
    wrong = [vars(each) | {"question": each.question.shown} for each in one.wrong[:SHOWN]]
    return vars(one) | {"gold": one.gold, "wrong": wrong}
