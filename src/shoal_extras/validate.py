"""`shoal validate`: whether a task's scorer gives the right answers full marks, and what it gives to answers that
ignore the question.

    found = validate(TasksConfig(suite="pond"), questions=200, seed=0)
    found["gcd"].gold               # 1.0: every right answer is right
    found["gcd"].constant           # the best one answer to all questions

A task whose right answers are not right cannot be learned; one that gives much to blind answers teaches to ignore the
question.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from shoal.cli.flags import add_allow_code, add_data, add_settings, config_of, given_settings
from shoal.config.answer_form import in_form, is_pattern
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rollout import Question, seed_of
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal.tasks.draw import QuestionFailed
from shoal.untrusted import json_safe, printable

HELP = """Scores the right answers of each task with the task's own scorer: all must get 1. Scores answers that ignore
the question, too: the best one answer to all questions, and the right answer to another question. What these get is
what a model can get without reading. Exits with 1 if a right answer does not get 1.

  shoal validate --data questions.jsonl
  shoal validate --suite reef
  shoal validate --task my_tasks:Larger --questions 1000"""
FROM_FILE = ("seed", "tasks")
SHOWN: Final = 3
"""Right answers of a task that are shown because they do not get 1."""
QUOTED: Final = 90
"""Characters of a question that are shown."""
COMMON: Final = 8
"""The commonest right answers, of which the best constant one is found."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="tasks from a TOML file")
    add_allow_code(parser)
    add_data(parser)
    parser.add_argument("--questions", type=int, default=200, metavar="N", help="of each task (default: 200)")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    add_settings(parser, ["seed", "tasks.suite", "tasks.only", "tasks.answer"])


def command(args: argparse.Namespace) -> int:
    if args.questions < 1:
        raise UserError("--questions is at least 1")
    config = config_of(args.config, given_settings(args), args.allow_code, FROM_FILE)
    Tasks(config.tasks)  # reads data sets before the line below is shown
    console = Console(stderr=args.json, highlight=False)
    with console.status("validating") as status:
        found = validate(
            config.tasks, args.questions, config.seed, lambda label: status.update(Text(f"validating {label}"))
        )
    if args.json:
        print(json.dumps(json_safe({label: _object(one) for label, one in found.items()})))
    else:
        _show(console, found)
    return int(any(one.wrong for one in found.values()))


@dataclass(frozen=True)
class Tried:
    """A right answer, with the score that it got."""

    question: Question
    answer: str
    score: float
    why: str = ""
    """What kept it from being scored, such as "unsupported"; empty if the scorer finds it wrong."""


@dataclass(frozen=True)
class Validated:
    """What was found of one task."""

    questions: int
    """Different ones that were looked at."""
    answered: int = 0
    """Those of them with a right answer."""
    wrong: Sequence[Tried] = ()
    """Right answers without full marks."""
    constant: float | None = None
    """The share of questions that the best one answer to all of them gets right. None: no right answers are known."""
    constant_answer: str = ""
    others: float | None = None
    """The share of questions for which the right answer to the next one is right."""

    @property
    def gold(self) -> float | None:
        """The share of right answers that get full marks; None if none are known."""
        return 1 - len(self.wrong) / self.answered if self.answered else None


def validate(
    config: TasksConfig, questions: int, seed: int, on_progress: Callable[[str], None] = lambda label: None
) -> dict[str, Validated]:
    """What was found of each task, by its label. `questions`: of each, at most. `on_progress` gets the name of each
    task before it is checked. Raises `UserError` for tasks that cannot be made."""
    tasks = Tasks(config)
    found = {}
    with Verifier(config) as verifier:
        for label, spec in zip(tasks.labels, tasks.specs, strict=True):
            on_progress(label)
            asked = _different(tasks, label, questions, seed)
            known = [(question, tasks.answer(question.id)) for question in asked]
            form = "whole" if is_pattern(spec.answer) else spec.answer
            right = [(question, in_form(answer, form)) for question, answer in known if answer is not None]
            found[label] = _validated(len(asked), right, verifier)
    return found


def _different(tasks: Tasks, label: str, most: int, seed: int) -> list[Question]:
    """Questions of a task with different texts, in training and held out."""
    texts: dict[str, Question] = {}
    for number in range(4 * most):
        if len(texts) == most:
            break
        for index in (0, 1):
            with suppress(QuestionFailed):  # one that cannot be made is told as the task's trouble
                question = tasks.made(label, seed_of("validate", seed, number), index)
                texts.setdefault(question.content, question)
    return list(texts.values())[:most]


def _validated(questions: int, right: Sequence[tuple[Question, str]], verifier: Verifier) -> Validated:
    """`right`: questions, each with a completion that gives its right answer."""
    if not right:
        return Validated(questions)
    answers = [answer for _, answer in right]
    common = [answer for answer, _ in Counter(answers).most_common(COMMON)]
    nexts = answers[1:] + answers[:1]
    items = [(q.id, [answer, other, *common]) for (q, answer), other in zip(right, nexts, strict=True)]
    scores = verifier.score(items)
    wrong = [_tried(verifier, *one) for one, row in zip(right, scores, strict=True) if row[0] < 1]
    shares = [sum(row[2 + place] >= 1 for row in scores) / len(right) for place in range(len(common))]
    best = max(range(len(common)), key=shares.__getitem__)
    others = sum(row[1] >= 1 for row in scores) / len(right) if len(right) > 1 else None
    return Validated(questions, len(right), wrong, shares[best], common[best], others)


def _tried(verifier: Verifier, question: Question, answer: str) -> Tried:
    """Scores it by itself, which tells why."""
    before = verifier.failures.copy()
    [[score]] = verifier.score([(question.id, [answer])])
    return Tried(question, answer, score, next(iter(verifier.failures - before), ""))


def _object(one: Validated) -> dict[str, Any]:
    wrong = [vars(each) | {"question": each.question.shown} for each in one.wrong[:SHOWN]]
    return vars(one) | {"gold": one.gold, "wrong": wrong}


def _show(console: Console, found: Mapping[str, Validated]) -> None:
    table = Table("task", box=None)
    for name in ("questions", "right answers that get 1", "best one answer", "another's answer"):
        table.add_column(name, justify="right")
    for label, one in found.items():
        best = "" if one.constant is None else f"{one.constant:.3f} ({printable(one.constant_answer, 16)})"
        gold = f"{one.answered - len(one.wrong)} of {one.answered}" if one.answered else ""
        others = "" if one.others is None else f"{one.others:.3f}"
        style = "red" if one.wrong else ""
        table.add_row(*map(Text, (label, str(one.questions), gold, best, others)), style=style)
    console.print(table)
    for label, one in found.items():
        for each in one.wrong[:SHOWN]:
            why = f" ({each.why})" if each.why else ""
            say = f"{label}: the right answer {printable(each.answer, 40)!r} gets {each.score:g}{why}: "
            console.print(Text(say + printable(each.question.shown, QUOTED), style="red"), soft_wrap=True)
    unknown = [label for label, one in found.items() if not one.answered]
    if unknown:
        console.print(Text(f"no right answers are known of: {', '.join(unknown)}"), soft_wrap=True)
    elif not any(one.wrong for one in found.values()):
        console.print("Every right answer is right.")
