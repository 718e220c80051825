"""What an answer and its tests say to each other in WASI: plain data, whatever a stranger makes of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.tasks.code.wasi_guest import Unknown, decoded, encoded

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
