r"""In which form a completion gives its answer, and how the answer is taken out of it.

    extract("It has 3 legs, so <answer>12</answer>", "tag")       # "12"
    extract("Half of 24 is 12.", "last_number")                    # "12"
    in_form("12", "boxed")                                         # "\boxed{12}"

Strangers write the texts, and somebody else may write the pattern. All forms but a pattern take linear time; the search
for a pattern ends after a second, and then finds nothing.
"""

import re
from collections.abc import Sequence
from typing import Final

import regex

from shoal.answers.number import last_number
from shoal.answers.place import boxed, spoken, tagged

LONGEST_SEARCH: Final = 1.0
"""Seconds that a pattern may search one text."""
STRICT: Final = "strict"
FORMS: Final = ("whole", STRICT, "tag", "boxed", "last_number", "last_line")
"""whole: all of the completion. strict: the same, wrong with any word beside the answer. tag: what stands in its last
<answer> </answer>. boxed: in its last \\boxed{ }. last_number: its last number, without marks between thousands.
last_line: its last line that is not empty."""
LONGER: Final = 16
"""Characters by which a strict answer may be longer than the right one."""
_WORDS: Final = re.compile(r"[^\W\d_]{2,}|[^\x00-\x7f]")
"""Words of two letters or more, and each sign beyond ASCII. A single letter may be a variable."""


def is_pattern(form: str) -> bool:
    """Whether `form` is a regular expression with one group, such as `Answer: (.+)`."""
    return form not in FORMS


def check_form(form: str) -> str:
    """`form` itself. Raises `ValueError` for one that is neither in `FORMS` nor a pattern with one group."""
    why = "it has no group, or several"
    try:
        if not is_pattern(form) or regex.compile(form).groups == 1:
            return form
    except (regex.error, RecursionError, OverflowError) as error:
        why = str(error)
    raise ValueError(
        f"{form!r} is none of {', '.join(FORMS)}, and no regular expression with one group, as in 'is (.+)': {why}"
    )


def extract(text: str, form: str) -> str | None:
    """The answer in a completion; None if it is not in this form. Thoughts (`<think>`) are no part of it."""
    if form == STRICT:
        return text.strip().removeprefix("<answer>").removesuffix("</answer>").strip()
    text = spoken(text)
    match form:
        case "whole":
            return text.strip()
        case "tag":
            return tagged(text, closed=True)
        case "boxed":
            return boxed(text)
        case "last_number":
            return last_number(text)
        case "last_line":
            return text.rstrip().rpartition("\n")[2].strip() or None
    try:
        found = [match[1] for match in regex.finditer(form, text, timeout=LONGEST_SEARCH)]
    except TimeoutError:
        return None
    return found[-1].strip() if found and found[-1] is not None else None


def says_more(said: str, rights: Sequence[str], question: str) -> bool:
    """Whether a strict answer is more than an answer: it has a word that neither the question nor
    `rights` have, or is longer than they by more than `LONGER` characters. If no right answer is known, the question's
    length counts."""
    known = set(_WORDS.findall(" ".join((question, *rights)).casefold()))
    longest = max(map(len, rights), default=len(question))
    return len(said) > longest + LONGER or not known.issuperset(_WORDS.findall(said.casefold()))


def in_form(answer: str, form: str) -> str:
    """A completion that gives `answer`. Raises `ValueError` where a pattern does not find the answer in itself."""
    match form:
        case "tag":
            return f"<answer>{answer}</answer>"
        case "boxed":
            return f"\\boxed{{{answer}}}"
    if is_pattern(form) and extract(answer, form) != answer.strip():
        raise ValueError(f"the pattern {form!r} does not find {answer!r} in itself")
    return answer
