"""A data set as a task: `TaskSpec(name="data", parameters={"path": "questions.jsonl"})`.

    task = data_task(path="questions.jsonl")
    question = task.question(seed=7, index=0)
    task.answer(question.id)

A question is (content hash, row): the hash is the task's version, and seed and index give the row. A peer looks it up
in its own copy.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from shoal.answers import SCORES_VERSION, fits, kind_of, read, score
from shoal.answers.choice import options_in
from shoal.answers.mathematics import load_math
from shoal.rollout import Question, QuestionId, hash_of, seed_of
from shoal.tasks.data.rows import Row
from shoal.tasks.data.scores import row_score
from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Info, Rows, prepared
from shoal.untrusted import printable


def data_task(**parameters: Any) -> DataTask:
    """The task of a data set, which is read into the cache if it is not there. Raises `UserError`."""
    spec = data_spec(parameters)
    folder, info = prepared(spec)
    return DataTask(spec.name, folder, info, "" if spec.score == "auto" else spec.score)


class DataTask:
    """Questions that are rows of a data set."""

    def __init__(self, name: str, folder: Path, info: Info, kind: str) -> None:
        """`folder`: in the cache. `kind`: of scoring; empty: what the right answers are."""
        self.name = name
        self.info = info
        self.kind = kind or info.score
        self._given = kind
        self.version = info.content
        self._own = row_score(self.kind)
        rules = self._own.load() if self._own else SCORES_VERSION
        self.config = hash_of([info.content, self.kind if info.answer else "", kind, info.comma, rules])
        self._rows = Rows(folder)
        if self.kind == "math" and info.answer:
            load_math()

    @property
    def runs_programs(self) -> bool:
        """Whether answers are programs."""
        return self._own is not None and self._own.runs_programs

    @property
    def has_answers(self) -> bool:
        """Whether there is a column of right answers."""
        return bool(self.info.answer)

    @property
    def conversational(self) -> bool:
        """Whether the prompts are chats; as in TRL, the first row tells."""
        return not isinstance(self._rows[0].prompt, str)

    @property
    def has_split(self) -> bool:
        """Whether the data says what is held out."""
        return self.info.has_split

    def holds_out(self, text: str) -> bool:
        """Whether the question with this text is on the data's own held-out side."""
        return self._rows.holds_out(text)

    @property
    def has_steps(self) -> bool:
        """Whether an answer is likely to need steps before it."""
        return bool(self.info.answer) and (self.kind == "math" or self.info.has_steps)

    @property
    def description(self) -> str:
        info = self.info
        parts = [f"{info.train:,} rows"]
        if info.has_split:
            parts[0] += f" to train on, {info.held_out:,} held out"
        parts += [f"read as {info.how}"] if info.how else []
        parts += ["decimal comma"] if info.comma else []
        parts += [f"scored by {self.kind}" if info.answer else "without right answers"]
        parts[-1] += f"; its hash is {info.content[:12]}"
        notes = [f"{info.skipped:,} row{'s' * (info.skipped != 1)} left out, as {info.first}"] if info.skipped else []
        notes += [f"{info.odd_count:,} of another kind: {'; '.join(info.odd)}"] if info.odd_count else []
        notes += [f"{info.duplicates:,} repeat an earlier one"] if info.duplicates else []
        others = [one for one in info.columns if f"'{one}'" not in info.form and f"'{one}." not in info.form]
        notes += [f"the model does not see {printable(', '.join(others), 100)} (context=COLUMN)"] if others else []
        notes += [f"{info.conflict_count:,} contradict: {'; '.join(info.conflicts)}"] if info.conflicts else []
        return "; ".join([", ".join(parts), *notes])

    def row_number(self, seed: int, index: int) -> int:
        """Which row the question is, from 0. Where the data has a split, odd indices are of the held-out side."""
        info, number = self.info, seed_of("row", seed, index)
        if info.held_out and (index % 2 or not info.train):
            return info.train + number % info.held_out
        return number % info.train

    def question(self, seed: int, index: int) -> Question:
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, self._row(seed, index).messages)

    def shown(self, most: int) -> list[tuple[str, str]]:
        """The first rows for people: what is asked, and all that is right, with its kind."""
        shown: list[tuple[str, str]] = []
        for number in range(min(most, len(self._rows))):
            row = self._rows[number]
            kind = self.kind if self._own else self.kind_for(row.right[0]) if row.right else ""
            shown.append((row.text, f"{' or '.join(row.right)} ({kind})" if row.right else ""))
        return shown

    def answer(self, question: QuestionId) -> str | None:
        """A right answer; None in a data set without right answers."""
        return next(iter(self.rights(question)), None)

    def rights(self, question: QuestionId) -> list[str]:
        """All right answers."""
        right = self._row(question.seed, question.index).right
        return [self._own.answer(one) if self._own else one for one in right]

    def read(self, question: QuestionId, said: str) -> tuple[str, str] | None:
        """What is taken for the answer in a text (empty: nothing), and the kind of scoring, for people. None where
        another package reads it, and without right answers."""
        row = self._row(question.seed, question.index)
        if self._own or not row.right:
            return None
        kind = self.kind_for(row.right[0])
        options = options_in(row.text) if kind == "choice" else None
        return read(kind, said, row.right[0], options, self.info.comma), kind

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """1 for each right answer; 0 for all where none is known, which is for rewards to judge."""
        row = self._row(question.seed, question.index)
        return [max((self._score(one, said, row) for one in row.right), default=0.0) for said in answers]

    def kind_for(self, right: str) -> str:
        """The kind of scoring by this right answer: the one that was asked for; otherwise what it is itself, or what
        nearly all others are, if it can be read as such."""
        if self._given:
            return self._given if fits(self._given, right, self.info.comma) else "text"
        own = kind_of(right, self.info.comma)
        if own == self.kind:
            return own
        if self.kind in ("number", "choice") and fits(self.kind, right, self.info.comma) and self.info.odd_count:
            return self.kind
        return "text" if own == "choice" else own

    def _score(self, right: str, said: str, row: Row) -> float:
        if self._own:
            return self._own.score(right, said)
        kind = self.kind_for(right)
        return score(kind, said, right, options_in(row.text) if kind == "choice" else None, self.info.comma)

    def entry(self, seed: int, index: int) -> dict[str, Any]:
        """All columns but the prompt's, as reward functions get them."""
        row = self._row(seed, index)
        own: dict[str, Any] = {self.info.answer: row.answer} if self.info.answer in self.info.columns else {}
        return {**dict.fromkeys(self.info.columns), **own, **row.columns}

    def _row(self, seed: int, index: int) -> Row:
        return self._rows[self.row_number(seed, index)]
