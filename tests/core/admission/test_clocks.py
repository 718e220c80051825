"""A clock that is wrong is named, whosever it is; one that is right is not."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from shoal.admission.clocks import Clocks
from shoal.identity.keys import name_of

KEYS = [bytes([number]) * 32 for number in range(4)]
MINUTE = 60.0


class Time:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def clocks(*peers: Sequence[float]) -> Clocks:
    """What is known after messages that are so many seconds ahead; negative: behind."""
    found = Clocks(Time())
    for key, each in zip(KEYS, peers, strict=False):
        for ahead in each:
            found.note(key, ahead)
    return found


@pytest.mark.parametrize(
    ("peers", "said"),
    [
        ([], ""),
        ([[0.1, -3.0, -40.0], [59.0]], ""),
        ([[-900.0, -300.0, -2.0]], ""),  # some messages were under way for long
        ([[600.0, 590.0]], f"a clock is wrong: that of {name_of(KEYS[0])} is about 10 min ahead of this machine's"),
        ([[-625.0, -605.0]], f"a clock is wrong: that of {name_of(KEYS[0])} is about 10 min behind this machine's"),
        ([[1.0], [600.0], [-2.0]], f"that of {name_of(KEYS[1])} is about 10 min ahead of this machine's"),
        ([[600.0], [605.0], [-2.0]], "the clock of this machine seems to be wrong: those of 2 of 3 peers are about 10"),
        ([[-600.0], [-605.0], [-2.0], [0.0]], f"{name_of(KEYS[0])}, {name_of(KEYS[1])} is about 10 min behind"),
        ([[600.0], [-3000.0]], "a clock is wrong: that of "),
    ],
)
def test_it_says_whose_clock_is_off_by_how_much(peers: list[list[float]], said: str) -> None:
    warning = clocks(*peers).warning
    assert said in warning
    assert bool(said) == bool(warning)


def test_a_clock_that_is_set_right_is_named_no_more() -> None:
    found = clocks([600.0] * 99)
    assert found.warning
    for _ in range(8):
        found.note(KEYS[0], 0.5)
    assert found.warning == ""


def test_who_is_gone_is_forgotten() -> None:
    time = Time()
    found = Clocks(time)
    found.note(KEYS[0], 600.0)
    time.now = 301.0
    assert found.warning == ""


def test_what_was_kept_for_a_while_says_nothing_at_first() -> None:
    """A new neighbour's last rollouts, and files of somebody who is gone, are old whatever the clocks are."""
    time = Time()
    found = Clocks(time)
    for _ in range(20):
        found.note(KEYS[0], -700.0, stored=True)
    assert found.warning == ""
    time.now = 61.0
    found.note(KEYS[0], -5.0, stored=True)
    assert found.warning == ""
    found.note(KEYS[1], 700.0, stored=True)  # nothing is kept before it is made
    assert name_of(KEYS[1]) in found.warning
    for _ in range(8):
        found.note(KEYS[0], -700.0, stored=True)  # it still comes as old
    time.now = 400.0
    found.note(KEYS[0], -700.0, stored=True)
    assert f"{name_of(KEYS[0])} is about 12 min behind" in found.warning


def test_a_flood_of_keys_costs_little() -> None:
    found = Clocks()
    for number in range(5000):
        found.note(number.to_bytes(32, "big"), 600.0)
    assert len(found.warning) < 200
