"""What a task is, and what comes of one that fails. Anything with the members of `Task` is one: see
docs/guides/tasks.md for one of one's own, and docs/extend/tasks.md for a package.

    trouble = Trouble()
    trouble.count(64)
    trouble.add("task 'mine'", "ZeroDivisionError: division by zero")
    str(trouble)      # "task 'mine': ZeroDivisionError: division by zero (1 of 64 answers failed)"
"""

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from shoal.errors import SHOWN, UserError, first_line
from shoal.rollout import Completion, Question, QuestionId
from shoal.untrusted import printable

MAX_INDEX = 1000
"""The highest index of a question under one seed; a question id with a higher one is refused."""


class Failed(Exception):  # noqa: N818 (it is a fact about an answer, not a fault)
    """Raised by a scorer: the answer gets 0, and is counted by this reason."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail


class NoVerdict(Failed):
    """Raised by a scorer: nobody can say whether the answer is right. It is counted by the reason, and gets the mean
    of its group, so that nothing is learned from it."""


@runtime_checkable
class Task(Protocol):
    """A source of questions. `(name, version, config, seed, index)` gives the same question on every machine.

    A task may have more members, which are looked for by their names (docs/extend/tasks.md): `has_split` with
    `holds_out`, `description`, `has_steps`, `has_answers`, `runs_programs`."""

    name: str
    version: str
    """Another version may make another question of the same numbers."""
    config: str
    """`hash_of` all parameters, including defaults."""

    def question(self, seed: int, index: int) -> Question:
        """Question `index` under `seed`, which is in [0, 2**63). It depends on nothing else."""
        ...

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """Raw scores in [0, 1], one for each answer. Strangers' answers are scored only in the verifier's worker, which
        gives one at a time. May raise `Failed` or `NoVerdict`."""
        ...


@runtime_checkable
class Answered(Task, Protocol):
    """A task that knows right answers. Worked examples are made of them."""

    def answer(self, question: QuestionId) -> str | None:
        """A right answer without the form that the settings ask for; None if none is known."""
        ...


def right_answer(task: Task, question: QuestionId) -> str | None:
    """The right answer that a task names; None if it names none, fails or gives something else than text."""
    if not isinstance(task, Answered):
        return None
    try:
        answer: object = task.answer(question)
    except UserError:
        raise
    except Exception:  # own code raises whatever it does
        return None
    return answer if isinstance(answer, str) else None


class Trouble:
    """Keeps the first failure and counts all of them. Empty as long as nothing has failed."""

    def __init__(self, what: str = "answers failed") -> None:
        """`what`: is counted."""
        self._what = what
        self.first = ""
        self.failed = self.tried = 0

    def count(self, number: int) -> None:
        """Counts `number` more tries, failed or not."""
        self.tried += number

    def add(self, who: str, error: str) -> None:
        """`who` failed on one; `error`: its message, of which the first line counts."""
        self.failed += 1
        if not self.first:
            self.first = f"{who}: {printable(first_line(error), SHOWN)}"

    def __str__(self) -> str:
        return f"{self.first} ({self.failed} of {self.tried} {self._what})" if self.first else ""


def too_long(groups: Sequence[tuple[Completion, ...]]) -> str:
    """A warning about the questions that have no completions; "" if all have some. `groups`: of each question.

    too_long([(), (completion,)])     # "1 of 2 questions are too long for the model"
    """
    lost = sum(not group for group in groups)
    return f"{lost} of {len(groups)} questions are too long for the model" if lost else ""
