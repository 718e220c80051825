"""How an answer to a row of a data set is scored. Strangers may have written the answer.

    score("number", "The legs are 12, 14 in all.", "14")       # 1.0
    score("choice", "The answer is (b).", "B")                  # 1.0

Each kind looks for the answer in what it is given, which may be a whole completion or what the task's form of answers
(`TaskSpec.answer`) found in it. Other packages add kinds by entry points (`RowScore`).
"""

import logging
import re
from collections.abc import Callable, Collection, Mapping
from decimal import Context, Decimal
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from shoal.config.answer_form import extract
from shoal.config.own_code import call_offered, offered
from shoal.errors import UserError
from shoal.rollout import canonical

SCORES: Final = ("exact", "number", "choice", "math")
"""The core's own kinds."""
GROUP: Final = "shoal.scores"
"""Entry points of other packages: a kind's name, and what makes its `RowScore`."""
SCORES_VERSION: Final = 2
"""Another one whenever an answer may get another score: nodes then do not exchange rollouts."""
MOST_DIGITS: Final = 400
"""Of a number."""
MOST_MATH: Final = 2000
"""Characters of an answer that math-verify reads: the last ones."""

MOST_BARE: Final = 200
"""Characters of an answer that may be a formula without the marks of one."""

_ALONE = re.compile(r"[\s(\[*]{0,8}([A-Za-z])[\s)\].:*]{0,8}")
_LETTER = r"(?:\\boxed\{)?(?:([A-HJ-Z])(?![A-Za-z'])|[(\[]([A-Za-z])[)\]])"  # an I is a person
_IS = r"(?:(?i:\s{1,4}is)[\s:=*$]{0,8}|\s{0,4}\*{0,2}[:=\n][\s:=*$]{0,8})"
_SAID = (
    re.compile(r"(?i:answer)" + _IS + _LETTER),
    re.compile(r"(?i:answer|option|choice)(?:" + _IS + r"|[\s*$]{0,4})" + _LETTER),
)
_FIRST = re.compile(r"\s{0,8}[(\[*]{0,3}([A-HJ-Z])[)\].:*]")


class RowForm(NamedTuple):
    """How the rows of a kind of its own are read."""

    prompt: str
    """The column of what is asked."""
    answer: str
    """The column of right answers."""
    read: Callable[[Mapping[Any, Any]], tuple[str, str, str]]
    """What a row asks; what verifies an answer, which the data set keeps as the right one; and a right answer. Raises
    `ValueError` with what a row lacks."""


class RowScore(Protocol):
    """A kind of scoring that another package adds. Its rows may have columns of their own."""

    columns: str
    """Which columns it needs, for an error."""
    runs_programs: bool
    """Whether answers are programs (`tasks.RunsPrograms`)."""

    def form(self, columns: Collection[str]) -> RowForm | None:
        """How rows with these columns are read; None if they are of another kind."""
        ...

    def load(self) -> str:
        """The version of its rules. Imports what scoring needs, which cannot be imported within the guard. Raises
        `UserError` if that is not installed."""
        ...

    def answer(self, right: str) -> str:
        """A right answer, by what verifies answers."""
        ...

    def score(self, right: str, said: str) -> float:
        """The score of an answer in [0, 1]. May raise `Failed` or `NoVerdict`."""
        ...


def row_score(kind: str) -> RowScore | None:
    """The kind of this name that another package adds; None if none does. Raises `UserError`."""
    if kind not in offered(GROUP):
        return None
    made: RowScore = call_offered(GROUP, kind)
    return made


def score(kind: str, said: str, right: str) -> float:
    """1 for a right answer, otherwise 0."""
    match kind:
        case "exact":
            return float(canonical(said) == canonical(right))
        case "number":
            number = number_in(said)
            return float(number is not None and number == number_in(right))
        case "choice":
            letter = letter_in(right)
            return float(letter != "" and letter_in(said) == letter)
        case "math":
            return float(equal(right, said))
    raise ValueError(kind)


def kind_of(right: str) -> str:
    """The kind of scoring that fits a right answer."""
    if re.fullmatch(r"\(?[A-Z]\)?", right):
        return "choice"
    plain = right.replace("−", "-").lstrip("+")
    return (
        "number" if len(plain) <= MOST_DIGITS and extract(plain, "last_number") == plain.replace(",", "") else "exact"
    )


def number_in(text: str) -> Decimal | None:
    """The last number in a text; None without one."""
    found = extract(text, "last_number")
    if found is None or len(found) > MOST_DIGITS:
        return None
    return _DECIMALS.create_decimal(found)


def letter_in(text: str) -> str:
    """The letter that a text chooses: it stands alone, else behind "answer is" or "answer:", else behind "answer",
    "option" or "choice", else in front, as in "B) 14". Empty without one."""
    said = next(filter(None, (pattern.findall(text) for pattern in _SAID)), [])
    whole = _ALONE.fullmatch(text.strip()[:40])
    first = _FIRST.match(text)
    letter = whole[1] if whole else "".join(said[-1]) if said else first[1] if first else ""
    return str(letter).upper()


def load_math() -> None:
    """Imports math-verify and has it do its work once: within the guard nothing can be imported. Raises `UserError`."""
    try:
        import math_verify
    except ImportError as error:
        raise UserError("score = 'math' needs math-verify: pip install 'shoal[math]'") from error
    logging.getLogger(math_verify.__name__).setLevel(logging.ERROR)  # it warns that it sets no limits of its own
    assert equal(r"\frac{1}{2}", "so it is $0.5$.")


def equal(right: str, said: str) -> bool:
    """Whether math-verify finds that an answer equals the right one. The caller limits time: it has no limit itself, as
    its own is a signal."""
    from math_verify import parse, verify

    said = said[-MOST_MATH:].strip()
    texts = [said] if _is_marked(said) or len(said) > MOST_BARE else [said, f"${said}$"]
    found = (parse(text, parsing_timeout=None) for text in texts)
    return any(verify(_parsed(right), one, timeout_seconds=None) for one in found if one)


@lru_cache(maxsize=256)
def _parsed(right: str) -> list[Any]:
    """A right answer as math-verify reads it: with the marks of a formula, unless it has some."""
    from math_verify import parse

    return list(parse(right if _is_marked(right) else f"${right}$", parsing_timeout=None))


def _is_marked(text: str) -> bool:
    """Whether there are the marks of a formula in a text."""
    return re.search(r"(?<!\\)\$|\\\(|\\\[|\\boxed", text) is not None


_DECIMALS = Context(prec=2 * MOST_DIGITS)
