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

from shoal.rollout import Question, QuestionId, hash_of, seed_of
from shoal.tasks.data.rows import Row
from shoal.tasks.data.scores import SCORES_VERSION, load_math, row_score, score
from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Info, Rows, prepared


def data_task(**parameters: Any) -> DataTask:
    """The task of a data set, which is read into the cache if it is not there. Raises `UserError`."""
    spec = data_spec(parameters)
    folder, info = prepared(spec)
    return DataTask(spec.name, folder, info, info.score if spec.score == "auto" else spec.score)


class DataTask:
    """Questions that are rows of a data set."""

    def __init__(self, name: str, folder: Path, info: Info, kind: str) -> None:
        """`folder`: in the cache. `kind`: of scoring."""
        self.name = name
        self.info = info
        self.kind = kind
        self.version = info.content
        self._own = row_score(kind)
        rules = self._own.load() if self._own else SCORES_VERSION
        self.config = hash_of([info.content, kind if info.answer else "", rules])
        self._rows = Rows(folder)
        if kind == "math" and info.answer:
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
        return bool(self.info.answer) and (self.kind == "math" or self.info.gold != "whole")

    @property
    def description(self) -> str:
        info = self.info
        count = f"{info.train:,} rows"
        sides = f"{count} to train on, {info.held_out:,} held out" if info.has_split else count
        left_out = f"; {info.skipped:,} rows left out: {info.first}" if info.skipped else ""
        scored = f", scored by {self.kind}" if info.answer else ", without right answers"
        return f"{sides}{scored}; its hash is {info.content[:12]}{left_out}"

    def row_number(self, seed: int, index: int) -> int:
        """Which row the question is, from 0. Where the data has a split, odd indices are of the held-out side."""
        info, number = self.info, seed_of("row", seed, index)
        if info.held_out and (index % 2 or not info.train):
            return info.train + number % info.held_out
        return number % info.train

    def question(self, seed: int, index: int) -> Question:
        identity = QuestionId(self.name, self.version, self.config, seed, index)
        return Question(identity, self._row(seed, index).messages)

    def longest(self) -> list[Question]:
        """The longest questions. The ids in them belong to no question."""
        identity = QuestionId(self.name, self.version, self.config, 0, 0)
        return [Question(identity, self._rows[number].messages) for number in self.info.longest]

    def answer(self, question: QuestionId) -> str | None:
        """The right answer; None in a data set without right answers."""
        right = self._row(question.seed, question.index).answer
        return self._own.answer(right) if self._own and right is not None else right

    def score(self, question: QuestionId, answers: Sequence[str]) -> list[float]:
        """1 for each right answer; 0 for all where none is known, which is for rewards to judge."""
        right = self._row(question.seed, question.index).answer
        if right is None:
            return [0.0] * len(answers)
        if self._own:
            return [self._own.score(right, said) for said in answers]
        return [score(self.kind, said, right) for said in answers]

    def entry(self, seed: int, index: int) -> dict[str, Any]:
        """All columns but the prompt's, as reward functions get them."""
        row = self._row(seed, index)
        own = {self.info.answer: row.answer} if self.info.answer in self.info.columns else {}
        return {**dict.fromkeys(self.info.columns), **own, **row.columns}

    def _row(self, seed: int, index: int) -> Row:
        return self._rows[self.row_number(seed, index)]
