"""Advantages within a group."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.learn.advantages import advantages

rewards = st.lists(st.floats(0, 1), min_size=1, max_size=16)


def test_without_scaling_they_are_rewards_less_their_mean() -> None:
    assert advantages([[1, 0, 0, 0]], "none")[0] == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_with_scaling_they_are_over_the_standard_deviation_of_the_group() -> None:
    # the sample variance of 1, 0, 0, 0 is (0.75² + 3 · 0.25²) / 3 = 0.25
    expected = [0.75 / 0.5001, *[-0.25 / 0.5001] * 3]
    assert advantages([[1, 0, 0, 0]], "group")[0] == pytest.approx(expected)


def test_with_batch_scaling_all_groups_have_one_divisor() -> None:
    # the sample variance of 1, 0, 1, 1 is (0.25² · 3 + 0.75²) / 3 = 0.25
    scaled = advantages([[1, 0], [1, 1]], "batch")
    expected = 0.5 / 0.5001
    assert scaled == [pytest.approx([expected, -expected]), pytest.approx([0, 0])]


@pytest.mark.parametrize("scale", ["none", "group", "batch"])
def test_lonely_rewards_and_none_at_all_are_no_advantage(scale: str) -> None:
    assert advantages([[0.7]], scale) == [[0.0]]
    assert advantages([], scale) == []


def test_a_given_baseline_goes_before_the_groups_own() -> None:
    found = advantages([[1, 0], [1, 1]], "none", [None, 0.25])
    assert found == [pytest.approx(advantages([[1, 0]], "none")[0]), pytest.approx([0.75, 0.75])]


def test_with_scaling_equal_rewards_are_a_deviation_from_their_baseline() -> None:
    # root mean squares of 0.75, 0.75, and of 0.5, -0.5: not of a deviation of 0, which would make them 7500
    found = advantages([[1, 1], [1, 0], [1]], "group", [0.25, 0.5, 0.5])
    assert found == [
        pytest.approx([0.75 / 0.7501] * 2),
        pytest.approx([0.5 / 0.5001, -0.5 / 0.5001]),
        pytest.approx([0.5 / 0.5001]),
    ]
    assert advantages([[0.25]], "group", [0.25]) == [[0.0]]


def test_with_batch_scaling_equal_rewards_of_a_whole_batch_have_no_divisor() -> None:
    assert advantages([[1, 1], [1]], "batch", [None, 0.5]) == [[0.0, 0.0], [0.5]]  # not 5000


def test_a_shift_is_added_to_the_baseline_before_scaling() -> None:
    plain = advantages([[1, 0], [1, 0]], "group")[0]
    found = advantages([[1, 0], [1, 0]], "group", [None, None], [0.0, -0.1])
    deviation = 0.5**0.5 + 1e-4  # the sample variance of 1, 0 is 0.5
    assert found == [pytest.approx(plain), pytest.approx([a + 0.1 / deviation for a in plain])]
    assert advantages([[1, 1]], "none", [0.25], [-0.1]) == [pytest.approx([0.85, 0.85])]


@pytest.mark.parametrize("scale", ["none", "group"])
@pytest.mark.parametrize("group", [[1.0], [0.0, 0.0], [1.0, 1.0, 1.0], [0.1] * 7])
def test_equal_rewards_give_nothing_to_learn(group: list[float], scale: str) -> None:
    assert advantages([group], scale)[0] == pytest.approx([0.0] * len(group), abs=1e-9)


@given(rewards, st.sampled_from(["none", "group"]))
def test_they_are_finite_and_sum_to_nought(group: list[float], scale: str) -> None:
    found = advantages([group], scale)[0]
    assert len(found) == len(group)
    assert all(map(math.isfinite, found))
    assert sum(found) == pytest.approx(0, abs=1e-6)


@given(rewards)
def test_better_rewards_have_greater_advantages(group: list[float]) -> None:
    found = advantages([group], "group")[0]
    for (a, b), (c, d) in zip(zip(group, found, strict=True), zip(group[1:], found[1:], strict=True), strict=False):
        assert (b <= d) == (a <= c) or b == pytest.approx(d)
