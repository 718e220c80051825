"""One row of a data set: what is asked, what is right, and its other columns.

    row = row_of({"question": "2 + 2 =", "answer": 4, "level": 1}, form)
    row.prompt, row.answer          # ("2 + 2 =", "4")

Rows come from anybody. A row that cannot be used is an `Unusable`, which says why.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from ctypes import c_float
from datetime import date, time
from decimal import Decimal
from math import isfinite
from typing import Any, Final, NamedTuple

import msgspec

from shoal.answers.place import boxed, tagged
from shoal.config.answer_form import extract
from shoal.rollout import Message
from shoal.untrusted import piles_marks, printable

MOST_CHARACTERS: Final = 100_000
"""Of a question with its right answers."""
MOST_BYTES: Final = 2**20
"""Of a row with all its columns."""
MOST_TURNS: Final = 1000
MOST_RIGHT: Final = 100
"""Right answers of a question."""
MOST_BITS: Final = 63
"""Of a whole number that is kept as such."""
ROLES: Final = ("system", "user", "assistant")


class Unusable(Exception):  # noqa: N818 (it is a fact about a row)
    """Why a row cannot be used."""


class Asked(NamedTuple):
    """What a row asks."""

    prompt: Any
    """A text, or chat messages that end with the user's."""
    answers: Any
    """The right answer, or a list of them; None in a data set without right answers."""


class Form(NamedTuple):
    """How the rows of a data set are read."""

    says: str
    """Which columns are what, for people."""
    prompt: str
    """The column of what is asked."""
    answer: str
    """The column of right answers; empty if there is none."""
    read: Callable[[Mapping[str, Any]], Asked]
    """Raises `ValueError` with what a row lacks."""
    kind: str = ""
    """The kind of scoring that goes with it; empty if the right answers tell."""


class Row(msgspec.Struct, frozen=True, array_like=True):
    """A row as it is kept."""

    prompt: str | list[tuple[str, str]]
    """What is asked: a text of the user's, or (role, text) for each turn."""
    answer: str | list[str] | None
    """What is right; several texts where each of them is. None in a data set without right answers."""
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

    @property
    def right(self) -> list[str]:
        """All right answers."""
        return [self.answer] if isinstance(self.answer, str) else self.answer or []


def row_of(raw: Any, form: Form, gold: str = "auto") -> Row:
    """The row of what a file or a data set has. `gold`: where in its column the answer stands. Raises `Unusable`."""
    if isinstance(raw, Unusable):
        raise raw
    if not isinstance(raw, Mapping):
        raise Unusable("is not an object with columns")
    try:
        asked, right = form.read(raw)
    except ValueError as error:
        raise Unusable(str(error)) from None
    prompt = _prompt(asked, form.prompt)
    answer = _answers(right, form.answer, "whole" if form.kind else gold) if form.answer else None
    columns = {str(name): value for name, value in raw.items() if name != form.prompt}
    value = columns.get(form.answer)
    if form.answer in columns and (value == answer or (isinstance(value, int) and value.bit_length() > MOST_BITS)):
        del columns[form.answer]  # it is kept once, as text
    row = Row(prompt, answer, columns)
    size = sum(len(text) for _, text in row.turns) + sum(map(len, row.right))
    if size > MOST_CHARACTERS:
        raise Unusable(f"has {size:,} characters in question and answer, and {MOST_CHARACTERS:,} are the most")
    return row


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
    """What the content hash covers of a row: turns and right answers, in which 5.0 is 5. No two share it."""
    return _encoder.encode((row.turns, None if row.answer is None else [stable(one) for one in row.right]))


def stable(answer: str) -> str:
    """A right answer in the form that it has in every kind of file: 5.0 is 5, TRUE is true."""
    if answer.isdigit():
        return answer
    if re.fullmatch(r"-?\d{1,400}(\.\d{0,400})?(e[+-]?\d{1,2})?", answer, re.IGNORECASE):
        digits = f"{Decimal(answer):f}"
        return digits.rstrip("0").rstrip(".") if "." in digits else digits
    return answer.lower() if answer in ("True", "False", "TRUE", "FALSE") else answer


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
            of = "" if role is None or role in ROLES else f" of {printable(repr(role), 40)}"
            raise Unusable(
                f"has a message{of} in {column!r}: each needs a role ({', '.join(ROLES)}) and a text as its content"
            )
        turns.append((str(role), _encodable(content, column)))
    if len(turns) > MOST_TURNS:
        raise Unusable(f"has more than {MOST_TURNS} messages in {column!r}")
    if turns[-1][0] != "user" or not turns[-1][1].strip():
        raise Unusable(f"does not end with a message of the user in {column!r}")
    return turns


def _answers(value: Any, column: str, gold: str) -> str | list[str]:
    if not isinstance(value, list):
        return _answer(value, column, gold)
    found = list(dict.fromkeys(_answer(one, column, gold) for one in value if one not in (None, "")))
    if not found:
        raise Unusable(f"has no {column!r}")
    if len(found) > MOST_RIGHT:
        raise Unusable(f"has {len(found)} right answers in {column!r}, and {MOST_RIGHT} are the most")
    return found if len(found) > 1 else found[0]


def _answer(value: Any, column: str, gold: str) -> str:
    if isinstance(value, bool):
        value = "true" if value else "false"
    elif isinstance(value, int | float | Decimal):
        value = _number(value, column)
    elif isinstance(value, date | time):
        value = re.sub(r"T00:00:00$|(?<=:\d\d):00$", "", value.isoformat())  # as people write it
    if value is None or value == "":
        raise Unusable(f"has no {column!r}")
    if not isinstance(value, str):
        raise Unusable(f"has {_kind(value)} in {column!r}, and not a text or a number")
    if re.fullmatch(r"=(?=.*(?:[A-Z]\d|\d[-+*/]))[-A-Z\d$:+*/().,;]{1,200}", value):
        raise Unusable(f"has the formula {printable(value, 40)} in {column!r}, and not its value: save the values")
    text = _encodable(value[:MOST_BYTES], column)
    answer = _gold(text) if gold == "auto" else extract(text, gold)
    if not answer:
        wanted = f" in the form {gold!r}" if gold not in ("whole", "auto") else ""
        raise Unusable(f"has no right answer in {column!r}{wanted}")
    return answer


def _gold(text: str) -> str:
    """The right answer at the end of its steps: behind ####, as GSM8K has it, in a box or in tags; otherwise all."""
    steps, mark, last = text.rpartition("####")
    if mark and (not steps or steps.endswith("\n")) and last.strip() and "\n" not in last.strip():
        return last.strip()
    return tagged(text, closed=True) or boxed(text) or text.strip()


def has_steps(text: str) -> bool:
    """Whether more than the right answer stands in its column."""
    return _gold(text) != text.strip()


def _number(value: int | float | Decimal, column: str) -> str:
    """A number in digits alone, the shortest that are this number: 12.0 is 12, and 1e+16 would be read as 16."""
    try:
        if isinstance(value, int):
            return str(value)
        if not isfinite(value):  # what tables have where a number is missing
            raise Unusable(f"has no number in {column!r}")
        return str(int(value)) if isinstance(value, float) and value.is_integer() else f"{Decimal(_shortest(value)):f}"
    except ValueError:  # Python writes no whole numbers of more than 4300 digits
        raise Unusable(f"has too long a number in {column!r}") from None


def _shortest(value: float | Decimal) -> str:
    """A number without what 32 bits or a sum left behind its last digit: 0.1 for 0.10000000149011612."""
    digits = str(value)
    if isinstance(value, float) and len(digits) > 16:
        single, short = f"{value:.6g}", f"{value:.12g}"
        if c_float(value).value == c_float(float(single)).value == value:
            return single
        if f"{value:.15g}" == f"{float(short):.15g}":
            return short
    return digits


def _encodable(text: str, column: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        is_byte = re.search("[\udc80-\udcff]", text)
        odd = "a byte that is no text: save the file as UTF-8" if is_byte else "half a character"
        raise Unusable(f"has in {column!r} {odd}") from None
    if piles_marks(text):
        raise Unusable(f"has more than 30 marks on one letter in {column!r}")
    return text


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", int: "a number", float: "a number"}
    return names.get(type(value), f"a value of type {type(value).__name__}")


_encoder = msgspec.msgpack.Encoder()
