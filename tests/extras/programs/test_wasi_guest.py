"""What an answer and its tests say to each other in WASI: plain data, whatever a stranger makes of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_extras.programs import wasi_guest
from shoal_extras.programs.wasi_guest import Unknown, decoded, encoded

PLAIN = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text(), inner),
    max_leaves=20,
)


@given(PLAIN)
def test_values_are_the_same_after_encoding(value: Any) -> None:
    again = decoded(iter(encoded(value).split()))
    assert (again, repr(again)) == (value, repr(value))


@given(st.lists(st.text("nitfsbdluez-0123456789", min_size=1), max_size=20) | st.lists(st.text(min_size=1)))
def test_words_of_a_stranger_are_plain_data_or_an_exception(words: list[str]) -> None:
    with suppress(Exception):
        encoded(decoded(iter(words)))


def test_what_is_no_plain_data_is_not_encoded() -> None:
    with pytest.raises(Unknown):
        encoded([object()])


BEFORE = """
import math
from math import floor
EPS = 1e-6
POWERS = []
for n in range(3):
    POWERS.append(2 ** n)
class Pair:
    def __init__(self, x):
        self.x = x
def near(a, b):
    return abs(a - b) < EPS and POWERS == [1, 2, 4] and Pair(math.floor(1.5)).x == floor(1.5)
"""
"""What stands before an answer: names of many kinds."""


def served(monkeypatch: pytest.MonkeyPatch, tests: list[str], answer: dict[str, Any], before: str) -> tuple[Any, Any]:
    """How many tests pass with this answer, and for which names it was asked. `answer`: a kind and a value of each."""
    heard: list[Any] = []

    def asked(said: str = "") -> Any:
        if not said:
            return [before, *tests]
        heard.append(decoded(iter(said.split())))
        name, *given = heard[-1] if isinstance(heard[-1], list) else [""]
        return ["returned", 12345.0, *given[:1]] if given else answer.get(name, ["absent", None])

    monkeypatch.setattr(wasi_guest, "asked", asked)
    wasi_guest.serve_tests()
    return heard.pop(), [name for name, *given in heard if not given]


def test_an_answer_is_not_asked_for_what_stands_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("near", "math", "floor", "EPS", "POWERS", "Pair", "abs", "f")
    answer = {name: ["function", None] for name in names}
    right, wrong = "assert near(f(3), 12345.0)", "assert near(f(3), 3)"
    check = "def check(candidate):\n    assert near(candidate(3), 3)\ncheck(f)"
    assert served(monkeypatch, [right, wrong, check], answer, BEFORE) == (1, ["f"])
    assert served(monkeypatch, [wrong], answer, "") == (1, ["near", "f"])  # where nothing stands before it


def test_names_that_nobody_has_are_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    assert served(monkeypatch, ["assert f(3)", "assert [].g == 3"], {"g": ["unknown", None]}, "") == (0, ["f"])
    assert served(monkeypatch, ["assert f(3)"], {"f": ["unknown", None]}, "") == (None, ["f"])


def test_where_nobody_can_run_what_stands_before_there_is_no_verdict(monkeypatch: pytest.MonkeyPatch) -> None:
    for before in ("1 / 0", "import no_such_module", "near = nothing"):
        assert served(monkeypatch, ["assert f(3)"], {"f": ["function", None]}, before)[0] is None
