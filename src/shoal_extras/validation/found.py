"""What `shoal validate` finds of tasks and of reward functions."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, Final

from shoal.answers import SCORES, kind_of
from shoal.config.answer_form import STRICT
from shoal.config.rewards import FunctionSection
from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.rewards import FunctionReward
from shoal.rewards.reward import FAILED
from shoal.rollout import Question, seed_of
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Task, Tasks
from shoal.tasks.data.task import DataTask
from shoal.tasks.draw import QuestionFailed
from shoal.untrusted import printable
from shoal_extras.validation.forms import THOUGHTS, Case, differs, forms_of, marked, with_foreign

COMMON: Final = 8
"""The commonest right answers, of which the best constant one is found."""
SAMPLE, FEW, ROWS = 50, 10, 10
"""Questions that are answered in all forms; of the slow kinds; rows that are shown as they are read."""
SLOW: Final = ("code", "math")
"""Kinds that take long to score a wrong answer: a sample of questions gets the answers that ignore the question."""
HOSTED: Final = 16
"""Questions of each task from which a host hears what its slack is."""
AT_ONCE: Final = 64
"""Questions that are scored between two signs of progress."""
OTHERS: Final = ("another answer", "another, in a sentence", "right in thoughts only", "two answers")
BLIND: Final = {"nothing": "", "one word": "Yes.", "a number": "42", "a long text": "One word, more. " * 200}
"""What reward functions are called with where no right answers are known."""

Asked = tuple[Question, Case]
Scores = Callable[[Sequence[tuple[Question, Sequence[str]]]], list[list[float]]]
"""Scores the answers to each question."""


@dataclass
class Form:
    """What answers in one form get."""

    example: str
    expected: float | None = None
    """1 of right answers, 0 of wrong ones; None where right answers are not known."""
    certain: bool = False
    """Whether the scorer is wrong if they get something else."""
    scores: list[float] = field(default_factory=list)
    rewards: dict[str, list[float | None]] = field(default_factory=dict)
    """Of each reward function; NaN: it failed."""


@dataclass
class Validated:
    """What was found of one task."""

    questions: int
    """Different ones that were looked at."""
    about: dict[str, str] = field(default_factory=dict)
    """Of a data set: what it is "taken for", its "rows", how it is "scored" and why, what to say "if wrong"."""
    rows: list[dict[str, str]] = field(default_factory=list)
    """Some questions with their right answers as they are read."""
    answered: int = 0
    """Questions with a right answer."""
    wrong: list[dict[str, Any]] = field(default_factory=list)
    """Right answers without full marks: "question", "answer", "score", and "why" it was not scored, such as
    "unsupported"; empty if the scorer finds it wrong."""
    constant: float | None = None
    """The share of questions that the best one answer to all of them gets right. None: no right answers are known."""
    constant_answer: str = ""
    others: float | None = None
    """The share of questions for which the right answer to the next one is right."""
    slack: dict[str, float] = field(default_factory=dict)
    """The share of right answers that still get 1 with foreign text beside them, by where that stands."""
    forms: dict[str, Form] = field(default_factory=dict)
    rewards: dict[str, dict[str, Any]] = field(default_factory=dict)
    """Of each reward function: "answers", how many of them got "none" and how many "failed", the "least" and the "most"
    value, milliseconds for each answer ("ms"), and the first failure ("trouble")."""

    @property
    def gold(self) -> float | None:
        """The share of right answers that get full marks; None if none are known."""
        return 1 - len(self.wrong) / self.answered if self.answered else None

    @property
    def most_slack(self) -> float:
        """The slack of the place that lets most through, but for thoughts, which hardly any scorer reads."""
        return max((share for place, share in self.slack.items() if place != THOUGHTS), default=0.0)

    @property
    def faults(self) -> list[str]:
        """What is wrong with the scorer or a reward function, for people."""
        said = [f"{len(self.wrong)} of {self.answered} right answers do not get 1"] if self.wrong else []
        for name, form in self.forms.items():
            if form.certain and form.expected == 0 and any(score >= 1 for score in form.scores):
                said.append(
                    f"a wrong form earns {mean(form.scores):.2g}: {name}, such as {printable(form.example, 60)!r}"
                )
        for name, about in self.rewards.items():
            right, wrong = (self._rewarded(name, expected) for expected in (1.0, 0.0))
            if about["failed"] == about["answers"]:
                said.append(f"{name} fails on all answers: {about['trouble']}")
            elif right is not None and wrong is not None and right <= wrong:
                said.append(f"{name} gives right answers no more than wrong ones: {right:.3g} and {wrong:.3g}")
        return said

    def _rewarded(self, name: str, expected: float) -> float | None:
        return mean(value for form in self.forms.values() if form.expected == expected for value in form.rewards[name])


def validate(
    config: TasksConfig,
    questions: int,
    seed: int,
    on_progress: Callable[[str], None] = lambda said: None,
    functions: Sequence[FunctionSection] = (),
) -> dict[str, Validated]:
    """What was found of each task, by its label. `questions`: of each, at most. `on_progress` gets what is being done.
    `functions`: rewards to call. Raises `UserError` for tasks and functions that cannot be made."""
    tasks = Tasks(config)
    found = {}
    with ExitStack() as opened:
        verifier = opened.enter_context(Verifier(config))
        rewards = {one.function: opened.enter_context(FunctionReward(one, config)) for one in functions}

        def scores(items: Sequence[tuple[Question, Sequence[str]]]) -> list[list[float]]:
            given: list[list[float]] = []
            for start in range(0, len(items), AT_ONCE):
                on_progress(f"{label}: answers to {start} of {len(items)} questions")
                some = items[start : start + AT_ONCE]
                alone = verifier.score([(question.id, [text]) for question, texts in some for text in texts])
                values = iter(value for [value] in alone)
                given += [[next(values) for _ in texts] for _, texts in some]
            return given

        for label, task, spec in zip(tasks.labels, tasks.tasks, tasks.specs, strict=True):
            on_progress(label)
            asked = _different(tasks, label, questions, seed)
            cases = [(one, case) for one in asked if (case := _case(tasks, task, spec, one))]
            found[label] = one = Validated(len(asked), answered=len(cases))
            if isinstance(task, DataTask):
                _describe(one, task, spec, cases)
            if cases:
                _score_right(one, cases, scores, verifier)
                _try_slack(one, cases, scores)
            _try_forms(one, asked, cases, scores, rewards)
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


def _case(tasks: Tasks, task: Task, spec: TaskSpec, question: Question) -> Case | None:
    """None where no right answer is known."""
    if isinstance(task, DataTask):
        rights = task.rights(question.id)
        known = task.kind_for(rights[0]) if rights and task.kind in SCORES else ""
        kind = "code" if task.runs_programs else known
        return Case(question.text, rights, kind, task.info.comma, spec.answer) if rights else None
    answer = tasks.answer(question.id)
    return None if answer is None else Case(question.text, [answer], "", form=spec.answer)


def _describe(one: Validated, task: DataTask, spec: TaskSpec, cases: Sequence[Asked]) -> None:
    """What a data set was taken for."""
    kinds = Counter(kind_of(case.rights[0], case.comma) for _, case in cases)
    right = kinds[task.kind]
    why = f"{right} of {len(cases)} right answers are of this kind" if right else "by these columns"
    if spec.parameters.get("score", "auto") != "auto":
        why = "as you say"
    columns = ", ".join(dict.fromkeys([*re.findall(r"'([^']+)'", task.info.form), *task.info.columns])) or "none"
    one.about = {
        "taken for": task.info.form,
        "rows": task.description,
        "scored": f"{task.kind}: {why}" if cases else "no right answers",
        "if wrong": f"--data '{spec.parameters['path']},prompt=COLUMN,answer=COLUMN,score=KIND' (columns: {columns})",
    }
    for question, case in sorted(cases, key=lambda pair: task.row_number(pair[0].id.seed, pair[0].id.index))[:ROWS]:
        value, kind = task.read(question.id, case.rights[0]) or (case.rights[0], task.kind)
        one.rows.append({"question": question.shown, "answer": case.rights[0], "read": value, "kind": kind})


def _score_right(one: Validated, cases: Sequence[Asked], scores: Scores, verifier: Verifier) -> None:
    """Scores right answers, those to the next question, and the commonest ones."""
    answers = [marked(case.rights[0], case.form) for _, case in cases]
    often = Counter(answers).most_common(COMMON)
    common = [answer for answer, count in often if count > 1 or answer == often[0][0]]
    blind = SAMPLE if cases[0][1].kind in SLOW else len(cases)
    texts = [[answer, following, *common] for answer, following in zip(answers, answers[1:] + answers[:1], strict=True)]
    texts[blind:] = [some[:1] for some in texts[blind:]]
    given = scores([(question, some) for (question, _), some in zip(cases, texts, strict=True)])
    for (question, _), answer, [score, *_] in zip(cases, answers, given, strict=True):
        if score < 1:
            before = verifier.failures.copy()
            verifier.score([(question.id, [answer])])  # by itself, which tells why
            why = next(iter(verifier.failures - before), "")
            one.wrong.append({"question": question.shown, "answer": answer, "score": score, "why": why})
    shares = [fmean(score >= 1 for score in column) for column in zip(*given[:blind], strict=True)][1:]
    one.others = shares[0] if len(cases) > 1 else None
    one.constant, one.constant_answer = max(zip(shares[1:], common, strict=True), key=lambda pair: pair[0])


def _sample(cases: Sequence[Asked]) -> Sequence[Asked]:
    """The questions that are answered in all forms."""
    return cases[: FEW if cases and cases[0][1].kind in SLOW else SAMPLE]


def _try_slack(one: Validated, cases: Sequence[Asked], scores: Scores) -> None:
    """Has right answers with foreign text scored."""
    said = [(question, with_foreign(case)) for question, case in _sample(cases)]
    columns = zip(*scores([(question, list(texts.values())) for question, texts in said]), strict=True)
    one.slack = {
        place: fmean(score >= 1 for score in column) for place, column in zip(said[0][1], columns, strict=True)
    }


def _try_forms(
    one: Validated,
    asked: Sequence[Question],
    cases: Sequence[Asked],
    scores: Scores,
    rewards: dict[str, FunctionReward],
) -> None:
    """Has answers to some questions in the usual forms scored and rewarded."""
    tried: list[tuple[Question, dict[str, str]]] = []
    for place, (question, case) in enumerate(_sample(cases)):
        nexts = (following.rights[0] for _, following in [*cases[place + 1 :], *cases[:place]])
        forms = list(forms_of(case, next((text for text in nexts if differs(case, text)), "")))
        tried.append((question, {form.name: form.text for form in forms}))
        for form in forms:
            one.forms.setdefault(form.name, Form(form.text, form.expected, form.certain))
    if rewards and not cases:
        one.forms = {name: Form(text) for name, text in BLIND.items()}
        tried = [(question, BLIND) for question in asked[:SAMPLE]]
    items = [(question, list(said.values())) for question, said in tried]
    for (_, said), (_, case), row in zip(tried, cases, scores(items) if cases else (), strict=False):
        given = dict(zip(said, row, strict=True))
        equal = case.kind == "math" and given.get("another answer", 0) > 0  # one formula, written in two ways
        for name, score in given.items():
            if not (equal and name in OTHERS):
                one.forms[name].scores.append(score)
    for function, reward in rewards.items():
        begun = time.perf_counter()
        values = reward.score(items)
        milliseconds = 1000 * (time.perf_counter() - begun)
        for (_, said), some in zip(tried, values, strict=True):
            for name, value in zip(said, some, strict=True):
                one.forms[name].rewards.setdefault(function, []).append(value)
        every = [value for some in values for value in some]
        known = list(_known(every))
        one.rewards[function] = {
            "answers": len(every),
            "none": every.count(None),
            "failed": len(every) - every.count(None) - len(known),
            "least": min(known, default=None),
            "most": max(known, default=None),
            "ms": milliseconds / max(1, len(every)),
            "trouble": reward.trouble,
        }


def _known(values: Iterable[float | None]) -> Iterable[float]:
    return (value for value in values if value is not None and value != FAILED)


def mean(values: Iterable[float | None]) -> float | None:
    """Of the values that there are, without None and NaN; None if there are none."""
    known = list(_known(values))
    return fmean(known) if known else None


def slack(config: TasksConfig) -> str:
    """What the slack of these tasks is and what to do about it, in a line."""
    try:
        found = validate(config, HOSTED, 0)
    except UserError as error:
        return f"slack: unknown: {error}"
    known = [(one.most_slack, label) for label, one in found.items() if one.slack]
    if not known:
        return "slack: unknown: these tasks tell no right answers"
    thoughts = sum(one.slack.get(THOUGHTS, 0) > 0 for one in found.values())
    loose = sum(share > 0 for share, _ in known)
    if not thoughts and not loose:
        return "slack: none: a right answer earns nothing with foreign text beside it"
    worst = " (up to {:.0%}, {})".format(*max(known)) if loose else ""
    strict = "--answer strict refuses it, and steps before answers, too"
    advice = "the rest is the tasks' own" if config.answer == STRICT else strict
    where = f"{loose} of {len(known)} tasks{worst}, and in thoughts in {thoughts}"
    return f"slack: a right answer earns with any text beside it, which peers may learn, in {where}: {advice}"
