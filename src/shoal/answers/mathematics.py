r"""Whether two mathematical answers are equal, by math-verify.

equal(r"\frac{1}{2}", "So it is $0.5$.")        # True
"""

import logging
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final

from shoal.answers.number import number as number_in
from shoal.answers.number import same, whole_number
from shoal.answers.place import LONGEST, bare, boxes, place, worked
from shoal.errors import UserError

MOST_MATH: Final = 2000
"""Characters of an answer that math-verify reads: the last ones."""


def load_math() -> None:
    """Imports math-verify and has it do its work once: within the guard nothing can be imported. Raises `UserError`."""
    try:
        import math_verify
    except ImportError as error:
        raise UserError("score = 'math' needs math-verify: pip install 'shoal[math]'") from error
    logging.getLogger(math_verify.__name__).setLevel(logging.ERROR)  # it warns that it sets no limits of its own
    assert equal(r"\frac{1}{2}", "so it is $0.5$.")


def equal(right: str, said: str) -> bool:
    """Whether an answer equals the right one. The caller limits time: math-verify's own limit is a signal."""
    right, computed = worked(right), worked(said)
    is_whole = computed != said and (where := place(said)) and where.text == said.strip()  # otherwise it may exclaim
    return (not is_whole and _equal(right, said)) or (computed != said and _equal(right, computed))


def _equal(right: str, said: str) -> bool:
    where = place(said)
    if where is None:
        return False
    wanted, text = _formula(right), where.text[-max(MOST_MATH, len(right) + 2) :]
    if _formula(text).casefold() == wanted.casefold():
        return True
    number, other = whole_number(right), whole_number(text)
    if number and other:
        return same(number, other)
    # A word or a name is no formula: math-verify takes it for a product of its letters, so that Paris equals pairs.
    if re.fullmatch(r"[^\W\d_]{3,}(?:[ -][^\W\d_]+)*", wanted):
        return False
    if _NAMED.fullmatch(wanted) and _BRACKET.match(_formula(text)):  # x = 1, y = 2 and (1, 2): the order counts
        wanted = "(" + re.sub(r"[a-z]\s?=", "", wanted) + ")"
    if _RELATION.match(_formula(text)) and not _RELATION.match(wanted):
        return False
    if bool(_PRIME.search(wanted)) != bool(_PRIME.search(text)) and not ("=" in text and _PRIME.search(text)):
        return False
    for mark in (_BASE, _BRACKET):  # math-verify overlooks them
        one, another = mark.search(wanted), mark.search(_formula(text))
        if one and another and one[1] != another[1]:
            return False
    texts = [text]
    if where.how == "box":
        texts.append(", ".join(box for box, *_ in boxes(said[-LONGEST:]) if box))  # \\boxed{1}, then \\boxed{2}
    return any(_verified(wanted, text) for text in texts)


def _formula(text: str) -> str:
    """A formula in LaTeX without what is around it; brackets stay, as they make intervals and points."""
    text = _REPEATING.sub(_fraction, text.translate(_SIGNS).replace(r"\varnothing", r"\emptyset"))
    text = _LENGTH.sub("", text)
    if r"\end{cases}" in text:
        text = _CASES.sub(lambda cases: cases[1].replace("\\\\", ", ").replace("&", ""), text)
    text = re.sub(r"\\mathrm\{([a-z])\}", r"\1", text)
    text = re.sub(r"√\s?\(?([\w.]+)\)?", r"\\sqrt{\1}", text)
    return bare(re.sub(r"(?<![\\a-zA-Z])(sin|cos|tan|log|ln|exp|pi)\b", r"\\\1", text), brackets=False)


_LATEX: Final = r"- ^{\circ} \pi \infty \times \cdot ^2 ^3 \le \ge \cup \cap \pm \emptyset"
_SIGNS: Final = {ord(sign): f"{latex} " for sign, latex in zip("−°π∞×·²³≤≥∪∩±∅", _LATEX.split(), strict=True)}
_REPEATING = re.compile(r"(?<!\d)(\d{0,40})\.(\d{0,40})\\overline\s?\{(\d{1,40})\}")
_CASES = re.compile(r"\\begin\{cases\}(.*?)\\end\{cases\}", re.DOTALL)
_LENGTH = re.compile(r"(?<=[\d}i])\s{1,2}(?:cm|mm|km|ft|kg|in|mi)(?:\^\{?[23]\}?)?(?=[\s.]*$)")
_NAMED = re.compile(r"[a-z]\s?=[^=,]{1,99}(?:,\s?[a-z]\s?=[^=,]{1,99}){1,9}")
_RELATION = re.compile(r"[<>≠]|\\(?:neq?|[lg](?:t|eq?))\b")
_PRIME = re.compile(r"(?<![a-zA-Z])[a-zA-Z]\s?(?:'|\^\s?\{?\s?\\prime)")
_BASE = re.compile(r"\d_\{?(\d{1,2})\}?\W*$")
"""The base of a number; the bracket of a point or a set."""
_BRACKET = re.compile(r"^(?:\\left\s?)?(\(|\\\{).*(?:\)|\\\})$", re.DOTALL)


def _fraction(found: re.Match[str]) -> str:
    """Repeating decimals, which math-verify does not read, as a fraction."""
    begin, once, again = f"{found[1]}{found[2]}", found[2], found[3]
    value = Fraction(int(begin + again) - int(begin or 0), (10 ** len(again) - 1) * 10 ** len(once))
    return rf"\frac{{{value.numerator}}}{{{value.denominator}}}"


def _verified(right: str, said: str) -> bool:
    from math_verify import parse, verify

    said = _formula(said[-MOST_MATH:])
    if not _is_marked(said):
        if _PROSE.search(_TEXTS.sub(" ", said)) or _COMPUTED.fullmatch(said):
            number = number_in(said)  # in prose math-verify takes the last number of several
            if number is None:
                return False
            said = str(number.value)
        said = f"\\boxed{{{said}}}"
    found = parse(said, parsing_timeout=None) if _is_small(said) else []
    return bool(found) and bool(verify(_parsed(right), found, timeout_seconds=None, allow_set_relation_comp=True))


@lru_cache(maxsize=256)
def _parsed(right: str) -> list[Any]:
    """A right answer as math-verify reads it: with the marks of a formula, unless it has some."""
    from math_verify import parse

    return list(parse(right if _is_marked(right) else f"\\boxed{{{right}}}", parsing_timeout=None))


MOST_DEPTH: Final = 5
"""Brackets within each other in a formula that math-verify sees."""
MOST_SYMBOLS: Final = 80
"""Numbers, letters, commands and signs in it."""
MOST_CHARACTERS: Final = 600
_SYMBOL = re.compile(r"\\[a-zA-Z]+|\d+|[a-zA-Z]|[-+|!%]")
_HEAVY = re.compile(
    r"\^\s?\{?\s?[-+]?(?:\d{0,9}[./]\d{6}|\d{5})|[])}]\s?\^\s?\{?\s?[-+]?\d{4}|\d\s?\^\s?\{?\s?\d+\s?\^\s?\{?\s?(?:\d\d|[5-9]|\()|\^\s?\w\s?\^"
    r"|\^\s?\{[^{}]{0,40}\^\s?\{[^{}]{0,40}\^|[)}!]\s?!|\d{4}\s?!|\\[dt]?binom\s?\{\s?\d{4}|\d[eE][-+]?\d{4}"
    r"|\^[^()]{1,40}\)\s?\^\s?\{?\s?\d{3}|\\(?:int|iint|oint|sum|prod|lim)(?![a-z])|\\frac\s?\{d\}"
    r"|\((?=[^()]{0,80}(?:\\sqrt|(?<![a-z\\])[a-z](?![a-z])))[^()]{0,80}[-+][^()]{0,80}\)\s?\^\s?\{?\s?(?:[2-9]\d|\d{3})"
    r"|(?:\)\s?\([^()]{0,40}){9}|\d{400}"
)
"""Towers of powers, factorials of factorials, high powers and long products of sums, integrals, series: long work."""


def _is_small(text: str) -> bool:
    """Whether math-verify is done with a formula in a moment, whoever wrote it."""
    if len(text) > MOST_CHARACTERS:
        return False
    depth = most = 0
    for bracket in re.findall(r"[](){}[]", text):
        depth += 1 if bracket in "([{" else -1
        most = max(most, depth)
    boxes_around = text.startswith("\\boxed")
    return most <= MOST_DEPTH + boxes_around and len(_SYMBOL.findall(text)) <= MOST_SYMBOLS and not _HEAVY.search(text)


def _is_marked(text: str) -> bool:
    """Whether there are the marks of a formula in a text."""
    return re.search(r"(?<!\\)\$|\\\(|\\\[|\\boxed", text) is not None


_TEXTS = re.compile(r"\\[a-zA-Z]+\s?(?:\{[a-zA-Z .,-]*\})?")
_COMPUTED = re.compile(r"[\d\s.,;+*/×÷$()-]{3,200}=[\d\s.,;+*/×÷$()=-]{1,200}")
_PROSE = re.compile(r"(?<![\\a-zA-Z])(?!(?:sin|cos|tan|cot|sec|csc|log|exp|sqrt|inf|and|or|pi|mod)\b)[a-zA-Z]{3,}")
