"""The command `shoal validate`."""

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_files, add_own_code, add_settings, config_of, given_settings
from shoal.config.rewards import FunctionSection
from shoal.config.settings import Config
from shoal.display.text import clip
from shoal.errors import UserError
from shoal.evaluation.blind import constants
from shoal.runs.data import ENOUGH
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.data.task import DataTask
from shoal.untrusted import json_safe, printable
from shoal_extras.validation.found import Form, Validated, mean, slack, validate

HELP = """Shows what data and tasks are taken for and how right answers are read. Scores right answers with the task's
own scorer, usual forms of right and wrong answers, and answers that ignore the question: what these get is what a model
can get without reading. Calls reward functions with the same answers. Exits with 1 if a right answer does not get 1, if
a wrong one earns, or if a reward function fails on all answers or does not tell right from wrong. Slack is the share of
right answers that still get 1 with foreign text beside them: strangers can teach such text. --answer strict stops it.

  shoal validate questions.xlsx
  shoal validate --suite reef
  shoal validate --task my_tasks:Larger --questions 1000
  shoal validate --data prompts.jsonl --reward my_rewards:score"""
__all__ = ["HELP", "add_arguments", "command", "doubts", "slack"]
FROM_FILE = ("seed", "tasks", "rewards")
SHOWN: Final = 3
"""Right answers of a task that are shown because they do not get 1."""
QUOTED: Final = 40
"""Columns of a question or an answer that are shown."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_files(parser)
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks and reward functions from a TOML file")
    add_allow_code(parser)
    add_own_code(parser)
    parser.add_argument("--questions", type=int, default=200, metavar="N", help="of each task (default: 200)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, ["seed", "tasks.suite", "tasks.only", "tasks.answer"])


def command(args: argparse.Namespace) -> int:
    if args.questions < 1:
        raise UserError("--questions is at least 1")
    config = config_of(args.config, given_settings(args), args.allow_code, FROM_FILE)
    functions = [spec for spec in config.rewards if isinstance(spec, FunctionSection)]
    console = Console(stderr=args.json, highlight=False)
    with Verifier(config.tasks) as early:  # what scores is started once, here: it imports while this process does
        early.start()
        Tasks(config.tasks)  # reads data sets before the line below is shown
        with console.status("validating") as status:
            said = lambda text: status.update(Text(f"validating {text}"))  # noqa: E731
            found = validate(config.tasks, args.questions, config.seed, said, functions)
    if args.json:
        print(json.dumps(json_safe({label: _object(one) for label, one in found.items()})))
    else:
        _show(console, found)
    return int(any(one.faults for one in found.values()))


def _object(one: Validated) -> dict[str, Any]:
    forms = {
        name: vars(form)
        | {"scores": len(form.scores), "mean": mean(form.scores)}
        | {"rewards": {function: mean(values) for function, values in form.rewards.items()}}
        for name, form in one.forms.items()
    }
    return asdict(one) | {"gold": one.gold, "faults": one.faults, "forms": forms}


def _show(console: Console, found: dict[str, Validated]) -> None:
    def line(text: str, style: str = "") -> None:
        console.print(Text(printable(text), style), soft_wrap=True)

    for label, one in found.items():
        for name, text in one.about.items():
            line(f"{label}: {name:10} {text}")
        rows = [[clip(row[name], 3 * QUOTED) for name in ("question", "answer", "read", "kind")] for row in one.rows]
        _print(console, ["question", "right answer", "read as", "kind"], rows)
        if len(found) == 1:
            forms = sorted(one.forms.items(), key=lambda pair: -(pair[1].expected or 0))
            shown = [_form(name, form, list(one.rewards)) for name, form in forms]
            _print(console, ["an answer that is", "for example", "must get", "gets", *one.rewards], shown)
        for expected in (1, 0) if len(found) > 1 else ():
            gets = {name: mean(form.scores) for name, form in one.forms.items() if form.expected == expected}
            line(f"{label}: {'right' if expected else 'wrong'} answers get {_grouped(gets)}")
        if one.slack:
            line(f"{label}: slack, right answers that get 1 with foreign text: {_grouped(one.slack)}")
        for name, about in one.rewards.items():
            figures = ", ".join(f"{key} {_figure(value)}" for key, value in about.items() if key != "trouble")
            line(f"{label}: {name}: {figures}{'; ' if about['trouble'] else ''}{about['trouble']}")
    heads = ["task", "questions", "right answers that get 1", "one answer to all", "another question's", "slack"]
    _print(console, heads, [_figures(label, one) for label, one in found.items()])
    for label, one in found.items():
        for each in one.wrong[:SHOWN]:
            answer, why = printable(each["answer"], 40), f" ({each['why']})" if each["why"] else ""
            asked = printable(each["question"], QUOTED)
            line(f"{label}: the right answer {answer!r} gets {each['score']:g}{why}: {asked}", "red")
        for fault in one.faults:
            line(f"{label}: {fault}", "red")
    unknown = [label for label, one in found.items() if not one.answered]
    if unknown:
        line(f"no right answers are known of: {', '.join(unknown)}")
    elif not any(one.faults for one in found.values()):
        line("Every right answer gets 1, and no wrong form does.")


def _form(name: str, form: Form, rewards: list[str]) -> list[str]:
    expected = "" if form.expected is None else f"{form.expected:g}" if form.certain else f"({form.expected:g})"
    figures = [mean(form.scores), *(mean(form.rewards[reward]) for reward in rewards)]
    return [name, clip(form.example, QUOTED), expected, *map(_figure, figures)]


def _grouped(figures: Mapping[str, float | None]) -> str:
    """Each figure with the names that have it."""
    found: dict[str, list[str]] = {}
    for name, value in figures.items():
        found.setdefault(_figure(value), []).append(name)
    return "; ".join(f"{figure} ({', '.join(names)})" for figure, names in sorted(found.items(), reverse=True))


def _figures(label: str, one: Validated) -> list[str]:
    best = "" if one.constant is None else f"{one.constant:.3f} ({printable(one.constant_answer, 16)})"
    gold = f"{one.answered - len(one.wrong)} of {one.answered}" if one.answered else ""
    slack = f"{one.most_slack:.3f}" if one.slack else ""
    return [label, str(one.questions), gold, best, "" if one.others is None else f"{one.others:.3f}", slack]


def _figure(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _print(console: Console, heads: list[str], rows: list[list[str]]) -> None:
    if not rows:
        return
    table = Table(box=None)
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=not place)
    for row in rows:
        table.add_row(*map(Text, row))
    console.print(table)


ASKED: Final = 16
"""Questions whose answers are scored in all usual forms."""
BLIND: Final = 0.6
"""The share that answers get which ignore the question, above which a model may learn these."""


def doubts(config: Config) -> list[str]:
    """What is doubtful of the data in `config`. Raises `UserError` for data and functions that cannot be used."""
    tasks = Tasks(config.tasks)
    held_out = tasks.held_out(int(config.resolved().evaluation.questions), config.seed)
    functions = [spec for spec in config.rewards if isinstance(spec, FunctionSection)]
    verified = not config.rewards or any(spec.kind == "verifier" for spec in config.rewards)
    names = [""] if verified else [one.function for one in functions]
    found = validate(config.tasks, ASKED, config.seed, functions=functions)
    blind = constants(tasks, held_out)
    said: list[str] = []
    for label, task in zip(tasks.labels, tasks.tasks, strict=True):
        if isinstance(task, DataTask) and task.info.train < ENOUGH:
            rows, measured = task.info.train, len(held_out[label])
            what = f"{rows} rows to train on, {measured} to measure, are few: chance decides"
            said.append(f"{label}: {what}\n  do: give {ENOUGH} rows or more, or held_out=FILE to measure")
        if (share := blind[label] or 0.0) >= BLIND:
            what = f"one answer to all questions is right for {share:.0%} of them"
            said.append(f"{label}: {what}\n  do: balance the answers, or a model may learn this one alone")
        if wrong := found[label].wrong:
            such = repr(printable(wrong[0]["answer"], 20))
            what = f"{len(wrong)} of {found[label].answered} right answers earn less than 1, such as {such}"
            said.append(
                f"{label}: {what}\n  do: correct the rows, or say how to score them (`shoal validate` shows more)"
            )
        said += [f"{label}: {what}" for what in _earning(found[label], names)][:1]
    return said


def _earning(found: Validated, functions: Sequence[str]) -> Iterator[str]:
    """Wrong forms that earn, by `functions`; an empty name: by the verifier."""
    certain = [(name, form) for name, form in found.forms.items() if form.certain and form.expected == 0]
    for name, form in certain:
        for function in functions:
            gets = mean(form.rewards.get(function, ()) if function else form.scores)
            full = mean(found.forms["bare"].rewards.get(function, ())) if function else 1.0
            if gets is not None and full and gets >= full / 2:
                what = f"a wrong form earns {gets:.2g}{f' by {function}' if function else ''}: {name}"
                such = repr(printable(form.example, 20))
                yield f"{what}, such as {such}\n  do: correct the scorer (`shoal validate` shows all forms)"
