"""One row of a data set: what is asked, what is right, and its other columns.

    layout = Layout.of(spec, ["question", "answer", "level"], "questions.jsonl")
    row = layout.row({"question": "2 + 2 =", "answer": 4, "level": 1})
    row.prompt, row.answer          # ("2 + 2 =", "4")

Rows come from anybody. A row that cannot be used is an `Unusable`, which says why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from math import isfinite
from typing import Any, Final

import msgspec

from shoal.config.answer_form import extract
from shoal.config.own_code import offered
from shoal.errors import UserError
from shoal.rollout import Message
from shoal.tasks.data.scores import GROUP, RowForm, row_score
from shoal.tasks.data.spec import COLUMNS, DataSpec
from shoal.untrusted import piles_marks, printable

MOST_CHARACTERS: Final = 100_000
"""Of a question with its right answer."""
MOST_BYTES: Final = 2**20
"""Of a row with all its columns."""
MOST_TURNS: Final = 1000
MOST_BITS: Final = 63
"""Of a whole number that is kept as such."""
ROLES: Final = ("system", "user", "assistant")


class Unusable(Exception):  # noqa: N818 (it is a fact about a row)
    """Why a row cannot be used."""


class LongerThanWanted(Unusable):
    """A row has more characters than the user wants."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is kept."""

    prompt: str | list[tuple[str, str]]
    """What is asked: a text of the user's, or (role, text) for each turn."""
    answer: str | None
    """What is right; None in a data set without right answers."""
    columns: dict[str, Any] = {}
    """The other columns by name, and that of the answer where it has more than the answer."""

    @property
    def turns(self) -> list[tuple[str, str]]:
        return [("user", self.prompt)] if isinstance(self.prompt, str) else self.prompt

    @property
    def messages(self) -> tuple[Message, ...]:
        return tuple(Message(role, text) for role, text in self.turns)

    @property
    def text(self) -> str:
        """What the user asks, as `Question.text` has it."""
        return "\n".join(text for role, text in self.turns if role == "user")


@dataclass(frozen=True)
class Layout:
    """Which columns are what."""

    prompt: str
    answer: str
    """Empty: there are no right answers."""
    gold: str
    """Where the right answer stands in its column."""
    wanted: int = 0
    """The most characters that the user wants; 0: all that are possible."""
    score: str = ""
    """The kind of scoring by another package that these columns are for; empty if there is none."""
    form: RowForm | None = None
    """How it reads rows."""

    @staticmethod
    def of(spec: DataSpec, columns: Sequence[str], name: str) -> Layout:
        """The layout of a data set that has these columns. Raises `UserError` if one is missing."""
        has = printable(", ".join(map(str, columns)), 200) or "none"
        for kind in offered(GROUP):
            own = row_score(kind) if spec.score in ("auto", kind) else None
            form = own.form(columns) if own and not (spec.prompt or spec.answer) else None
            if form:
                return Layout(form.prompt, form.answer, "whole", spec.most_characters, kind, form)
            if own and spec.score == kind:
                raise UserError(f"{name} has not the columns {own.columns}; it has {has}")
        found = {}
        for kind, usual in COLUMNS.items():
            given = str(getattr(spec, kind))
            wanted = (given,) if given else usual
            there = [column for column in wanted if column in columns or column.partition(".")[0] in columns]
            if not there and (given or kind == "prompt"):
                looked = " or ".join(map(repr, wanted))
                raise UserError(
                    f"{name} has no column {looked} for the {kind}; it has {has}: say --data '...,{kind}=COLUMN'"
                )
            found[kind] = there[0] if there else ""
        return Layout(found["prompt"], found["answer"], spec.gold, spec.most_characters)

    def row(self, raw: Any) -> Row:
        """The row of what a file or a data set has. Raises `Unusable`."""
        if isinstance(raw, Unusable):
            raise raw
        if not isinstance(raw, Mapping):
            raise Unusable("is not an object with columns")
        columns = {str(name): value for name, value in raw.items() if name != self.prompt}
        prompt: str | list[tuple[str, str]]
        answer: str | None = None
        if self.form:
            try:
                prompt, answer, solution = self.form.read(raw)
            except ValueError as error:
                raise Unusable(str(error)) from None
            size = len(prompt) + len(solution)
            prompt, answer = _encodable(prompt, self.prompt), _encodable(answer, self.answer)
        else:
            prompt = _prompt(_field(raw, self.prompt), self.prompt)
            if self.answer:
                answer = _answer(_field(raw, self.answer), self.answer, self.gold)
                value = columns.get(self.answer)
                if value == answer or (isinstance(value, int) and value.bit_length() > MOST_BITS):
                    del columns[self.answer]  # it is kept once, as text
            size = sum(len(text) for _, text in Row(prompt, None).turns) + len(answer or "")
        if size > MOST_CHARACTERS:
            raise Unusable(f"has {size:,} characters in question and answer, and {MOST_CHARACTERS:,} are the most")
        if self.wanted and size > self.wanted:
            raise LongerThanWanted(f"has {size:,} characters in question and answer")
        return Row(prompt, answer, columns)


def encoded(row: Row) -> bytes:
    """The row as it is kept. Raises `Unusable` for values that cannot be kept, and for too many."""
    try:
        data = _encoder.encode(row)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise Unusable(f"has a value that cannot be kept ({printable(str(error), 80)})") from None
    if len(data) > MOST_BYTES:
        raise Unusable(f"has {len(data):,} bytes, and {MOST_BYTES:,} are the most")
    return data


def identified(row: Row) -> bytes:
    """What the content hash covers of a row: its turns and its right answer. No two rows have the same bytes."""
    return _encoder.encode((row.turns, row.answer))


def _field(raw: Mapping[str, Any], name: str) -> Any:
    """A column, or the field in a column that a name with dots says; None if it is missing."""
    if name in raw or "." not in name:
        return raw.get(name)
    value: Any = raw
    for part in name.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _prompt(value: Any, column: str) -> str | list[tuple[str, str]]:
    if value is None or value == [] or (isinstance(value, str) and not value.strip()):
        raise Unusable(f"has no {column!r}")
    if isinstance(value, str):
        return _encodable(value, column)
    if not isinstance(value, list):
        raise Unusable(f"has {_kind(value)} in {column!r}, and not a text or chat messages")
    turns = []
    for turn in value[: MOST_TURNS + 1]:
        role = turn.get("role") if isinstance(turn, Mapping) else None
        content = turn.get("content") if isinstance(turn, Mapping) else None
        if not (role in ROLES and isinstance(content, str)):
            raise Unusable(f"has a message in {column!r} without a role ({', '.join(ROLES)}) and a text as its content")
        turns.append((str(role), _encodable(content, column)))
    if len(turns) > MOST_TURNS:
        raise Unusable(f"has more than {MOST_TURNS} messages in {column!r}")
    if turns[-1][0] != "user" or not turns[-1][1].strip():
        raise Unusable(f"does not end with a message of the user in {column!r}")
    return turns


def _answer(value: Any, column: str, gold: str) -> str:
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, int | float | Decimal):
        value = _number(value, column)
    if value is None or value == "":
        raise Unusable(f"has no {column!r}")
    if not isinstance(value, str):
        raise Unusable(f"has {_kind(value)} in {column!r}, and not a text or a number")
    answer = extract(_encodable(value[:MOST_BYTES], column), gold)
    if not answer:
        raise Unusable(f"has no right answer in {column!r}" + (f" in the form {gold!r}" if gold != "whole" else ""))
    return answer


def _number(value: int | float | Decimal, column: str) -> str:
    """A number in digits alone: 1e+16 would be read as 16."""
    try:
        if isinstance(value, int):
            return str(value)
        if not isfinite(value):  # what tables have where a number is missing
            raise Unusable(f"has no number in {column!r}")
        return f"{Decimal(str(value)):f}"
    except ValueError:  # Python writes no whole numbers of more than 4300 digits
        raise Unusable(f"has too long a number in {column!r}") from None


def _encodable(text: str, column: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Unusable(f"has half a character (a lone surrogate) in {column!r}") from None
    if piles_marks(text):
        raise Unusable(f"has more than 30 marks on one letter in {column!r}")
    return text


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


_encoder = msgspec.msgpack.Encoder()
