r"""In which form a completion gives its answer, and how the answer is taken out of it.

    extract("It has 3 legs, so <answer>12</answer>", "tag")       # "12"
    extract("Half of 24 is 12.", "last_number")                    # "12"
    in_form("12", "boxed")                                         # "\boxed{12}"

Strangers write the texts, and somebody else may write the pattern. All forms but a pattern take linear time; the search
for a pattern ends after a second, and then finds nothing.
"""

import re
from typing import Final

import regex

LONGEST_SEARCH: Final = 1.0
"""Seconds that a pattern may search one text."""
FORMS: Final = ("whole", "tag", "boxed", "last_number", "last_line")
"""whole: all of the completion. tag: what stands in its last <answer> </answer>. boxed: in its last \\boxed{ }.
last_number: its last number, without commas between thousands. last_line: its last line that is not empty."""

_WHOLE = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)"
_NUMBER = re.compile(rf"(?:(?<![\w.])[-−])?(?:{_WHOLE}(?:\.[0-9]+)?|(?<![\w.])\.[0-9]+)")
_BOX = "\\boxed{"


def is_pattern(form: str) -> bool:
    """Whether `form` is a regular expression with one group, such as `Answer: (.+)`."""
    return form not in FORMS


def check_form(form: str) -> str:
    """`form` itself. Raises `ValueError` for one that is neither in `FORMS` nor a pattern with one group."""
    if not is_pattern(form):
        return form
    try:
        groups = regex.compile(form).groups
    except (regex.error, RecursionError, OverflowError) as error:
        raise ValueError(f"{form!r} is none of {', '.join(FORMS)}, and no regular expression: {error}") from None
    if groups != 1:
        raise ValueError(
            f"{form!r} is none of {', '.join(FORMS)}; a regular expression needs one group, as in 'is (.+)'"
        )
    return form


def extract(text: str, form: str) -> str | None:
    """The answer in a completion; None if the completion is not in this form."""
    match form:
        case "whole":
            return text.strip()
        case "tag":
            return _between(text, "<answer>", "</answer>")
        case "boxed":
            return _boxed(text)
        case "last_number":
            numbers = _NUMBER.findall(text)
            return numbers[-1].replace(",", "").replace("−", "-") if numbers else None
        case "last_line":
            return text.rstrip().rpartition("\n")[2].strip() or None
    try:
        found = [match[1] for match in regex.finditer(form, text, timeout=LONGEST_SEARCH)]
    except TimeoutError:
        return None
    return found[-1].strip() if found and found[-1] is not None else None


def in_form(answer: str, form: str) -> str:
    """A completion that gives `answer`. Raises `ValueError` where a pattern does not find the answer in itself."""
    match form:
        case "tag":
            return f"<answer>{answer}</answer>"
        case "boxed":
            return f"{_BOX}{answer}}}"
    if is_pattern(form) and extract(answer, form) != answer.strip():
        raise ValueError(f"the pattern {form!r} does not find {answer!r} in itself")
    return answer


def _between(text: str, opening: str, closing: str) -> str | None:
    """What stands between the last pair of marks. It searches from the end: a regular expression takes quadratic time
    for a text made for it."""
    start = text.rfind(opening, 0, max(0, text.rfind(closing)))
    if start < 0:
        return None
    start += len(opening)
    return text[start : text.find(closing, start)].strip()


def _boxed(text: str) -> str | None:
    """The content of the last box, with the braces in it in pairs; None if it does not end."""
    start = text.rfind(_BOX)
    if start < 0:
        return None
    start += len(_BOX)
    depth = 1
    for place in re.finditer(r"[{}]", text[start:]):
        depth += 1 if place[0] == "{" else -1
        if not depth:
            return text[start : start + place.start()].strip()
    return None
