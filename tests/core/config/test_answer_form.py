"""The forms of answers: what is taken out of a completion, and that nothing hostile takes long."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.answer_form import FORMS, check_form, extract, in_form, says_more
from shoal.config.tasks import TaskSpec


@pytest.mark.parametrize(
    ("form", "text", "answer"),
    [
        ("boxed", r"so \boxed{12}", "12"),
        ("boxed", r"\boxed{1} no, \boxed{ \frac{1}{2} } it is", r"\frac{1}{2}"),
        ("boxed", r"\boxed{12", None),
        ("boxed", "12", None),
        ("last_number", "Half of 24 is 12.", "12"),
        ("last_number", "1,234,567 people", "1234567"),
        ("last_number", "2, 3, 5", "5"),
        ("last_number", "it is -3.50", "-3.50"),
        ("last_number", "it is \u22127", "-7"),
        ("last_number", "5-3", "3"),
        ("last_number", "it is .5", ".5"),
        ("last_number", "it is -.25", "-.25"),
        ("last_number", "v.5", "5"),
        ("last_number", "so ...5", "5"),
        ("last_number", "none", None),
        ("last_line", "I think.\n\n 12 \n\n", "12"),
        ("last_line", " \n ", None),
        (r"Answer: (\w+)", "Answer: no. Answer: yes.", "yes"),
        (r"Answer: (\w+)", "yes", None),
        (r"a(b)?", "a", None),
    ],
)
def test_the_answer_in_a_completion(form: str, text: str, answer: str | None) -> None:
    assert extract(text, form) == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("<answer>4</answer>", "4"),
        ("<answer>3</answer> no: <answer> 4\n</answer> so", "4"),
        ("<answer>3</answer> <answer>4", "3"),
        ("<answer>4</answer> or </answer>", "4"),
        ("<answer>one <answer>two</answer>", "two"),
        ("<answer></answer>", ""),
        ("4", None),
        ("</answer><answer>", None),
        ("<answer>", None),
        ("", None),
    ],
)
def test_the_answer_between_tags(text: str, answer: str | None) -> None:
    assert extract(text, "tag") == answer
    assert extract(text, "whole") == text.strip()


@given(st.text(alphabet="0123456789abc ", min_size=1).map(str.strip).filter(bool), st.sampled_from(FORMS[:3]))
def test_an_answer_in_its_form_is_found_again(answer: str, form: str) -> None:
    assert extract(in_form(answer, form), form) == answer


@given(st.text())
def test_no_text_breaks_a_form(text: str) -> None:
    for form in FORMS:
        found = extract(text, form)
        assert found is None or len(found) <= 4 * len(text)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("piece", ["<answer>", r"\boxed{", "{", "111,", "-1.", "\n", " ", "9"])
def test_a_text_made_to_take_long_does_not(form: str, piece: str) -> None:
    """Ten times the longest text that is scored takes a moment; in quadratic time this test would run for hours."""
    extract(piece * (1_000_000 // len(piece)), form)


def test_a_pattern_that_does_not_find_an_answer_in_itself_gives_no_example() -> None:
    assert in_form("12", r"(\d+)$") == "12"
    with pytest.raises(ValueError, match="does not find '12' in itself"):
        in_form("12", r"Answer: (\d+)")


@pytest.mark.parametrize(
    ("form", "message"),
    [
        ("tags", "'tags' is none of whole, strict, tag, boxed, last_number, last_line, and no regular"),
        ("(", "as in 'is (.+)': missing"),
        ("(a)(b)", "one group"),
    ],
)
def test_other_forms_are_refused(form: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        check_form(form)
    with pytest.raises(ValueError, match="is none of"):
        TaskSpec(name="x", answer=form)


def test_a_pattern_that_takes_for_ever_finds_nothing() -> None:
    assert extract("a" * 10_000, "(a|aa)+b") is None


@pytest.mark.parametrize(
    ("said", "more"),
    [
        ("7/20", False),
        ("<answer>7/20</answer>", False),
        (" 7 / 20\n", False),
        ("7/20 Thanks", True),
        ("7/20 бис", True),
        ("7/20 \N{HONEYBEE}", True),
        ("<think>hm</think>7/20", True),
        ("7/20" + " " * 12 + "# 1", False),
        ("7/20" + " 7" * 9, True),
        ("Simplify 7/20", False),
        ("Simplify the fraction simplify 7/20", True),
    ],
)
def test_a_strict_answer_is_the_whole_completion(said: str, more: bool) -> None:
    found = extract(said, "strict")
    assert found is not None
    assert says_more(found, ["7/20"], "Simplify the fraction 35/100.") is more
