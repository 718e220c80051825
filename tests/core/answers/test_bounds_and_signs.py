"""Numbers that words or marks make a bound, negative or a fraction."""

from __future__ import annotations

import pytest

from shoal.answers import score

BOUNDS = [
    *("> 18", "≥18", ">= 18", "<18", "< 18", "x > 18", "⩾ 18", r"\geqslant 18", r"\gt 18", "&gt; 18", "$> 18$"),
    *(r"\boxed{>18}", "18 < x", "at least 18", "at most 18", "18 at least", "18+", "18 or above", "18 or higher"),
    *("18 and over", "18 years or older", "over 18", "It is over 18.", "under 18", "below 18", "above 18 years"),
    *("beyond 18", "exceeds 18", "no more than 18", "fewer than 18", "The answer is > 18"),
]
"""None of them says that it is 18."""
NONE = [
    *("about 18", "approximately 18", "~18", "≈ 18", "roughly 18 apples", "around 18", "The numbers add up to 18."),
    *(
        "The answer is:\n\n> 18",
        "12 + 6 makes:\n\n> **18**",
        "=> 18",
        "-> 18",
        "→ 18",
        ">>> 18",
        "<b>18</b>",
        "<br> 18",
    ),
    *(
        "He works over 3 days, so he gets 18 dollars.",
        "Over 3 years the total is 18.",
        "18 > 12",
        "18 is more than 12.",
    ),
    *("They have 18. That is over 12.", "She has left over 18 apples"),
]
"""A model that is asked for a number says "about" and means it; a quote, an arrow or a tag is no sign of comparison."""
SIGNS = [
    ("-70000", "a loss of $70,000", 1),
    ("70000", "a loss of $70,000", 0),  # it may be asked for the profit; who is asked for the loss says "the loss is"
    ("70000", "The loss is $70,000.", 1),
    ("70000", "He lost $70,000.", 1),
    ("-70000", "a loss of -$70,000", 1),
    ("-500", "That is a net loss of $500", 1),
    ("500", "a deficit of $500", 0),
    ("70000", "a profit of $70,000", 1),
    ("20", "a decrease of 20%", 1),  # who asks how much it fell
    ("-20", "an increase of 20%", 0),
    ("21", "a drop of 20 degrees", 0),
    ("-5", "5 degrees below zero", 1),
    ("5", "5 degrees below zero", 0),
    ("-5", "5 °C below 0", 1),
    ("-12", "twelve below zero", 1),
    ("-5", "It was -5 degrees, below zero.", 1),
]
AGAIN = [
    ("0.333", "1/3 ≈ 0.333", 1),
    ("2/3", "1/3 ≈ 0.333", 0),
    ("5", "5, or about 6", 0),  # two numbers, and no rounding
    ("6", "5, or about 6", 0),
    ("5", "5, or about 5.01", 0),
    ("18", "18 dollars and 0 cents", 1),
    ("18.05", "$18 and 5 cents", 1),
    ("18", "18 dollars and 25 cents", 0),
    ("3/8", "three eighths", 1),
    ("3", "three eighths", 0),
    ("3.75", "three and three quarters", 1),
    ("1/3", "one third of the cake", 1),
    ("0.5", "a half", 1),
    ("1.5", "one and a half", 1),
    ("23/3", "the twenty-third", 0),
    ("3/8", r"{3 \over 8}", 1),
    ("0.75", "³⁄₄", 1),
    ("1234567", "As of 2020, 1,234,567 people live there.", 1),
    ("2020", "As of 2020, 1,234,567 people live there.", 0),
]
OTHERS = [
    ("math", "73", "437 + 468 = 905, 905-832=73", None, 1),
    ("math", "3", "1, 2, 3", None, 0),
]


@pytest.mark.parametrize("said", BOUNDS)
def test_a_bound_is_not_the_number(said: str) -> None:
    assert score("number", said, "18") == 0


@pytest.mark.parametrize("said", NONE)
def test_what_looks_like_a_bound_and_is_none(said: str) -> None:
    assert score("number", said, "18") == 1


@pytest.mark.parametrize(("right", "said", "wanted"), SIGNS)
def test_words_that_make_a_number_negative(right: str, said: str, wanted: int) -> None:
    assert score("number", said, right) == wanted


@pytest.mark.parametrize(("right", "said", "wanted"), AGAIN)
def test_a_number_in_parts_in_words_or_said_again(right: str, said: str, wanted: int) -> None:
    assert score("number", said, right) == wanted


@pytest.mark.parametrize(("kind", "right", "said", "options", "wanted"), OTHERS)
def test_other_kinds(kind: str, right: str, said: str, options: None, wanted: int) -> None:
    if kind == "math":
        pytest.importorskip("math_verify")
    assert score(kind, said, right, options) == wanted
