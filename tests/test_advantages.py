"""Advantages within a group."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.learn.advantages import group_advantages

rewards = st.lists(st.floats(0, 1), min_size=1, max_size=16)


def test_without_scaling_they_are_rewards_less_their_mean() -> None:
    assert group_advantages([1, 0, 0, 0]) == pytest.approx([0.75, -0.25, -0.25, -0.25])


def test_with_scaling_they_are_over_the_standard_deviation_of_the_group() -> None:
    # the sample variance of 1, 0, 0, 0 is (0.75² + 3 · 0.25²) / 3 = 0.25
    expected = [0.75 / 0.5001, *[-0.25 / 0.5001] * 3]
    assert group_advantages([1, 0, 0, 0], "group") == pytest.approx(expected)


@pytest.mark.parametrize("scale", ["none", "group"])
@pytest.mark.parametrize("group", [[1.0], [0.0, 0.0], [1.0, 1.0, 1.0], [0.1] * 7])
def test_equal_rewards_give_nothing_to_learn(group: list[float], scale: str) -> None:
    assert group_advantages(group, scale) == pytest.approx([0.0] * len(group), abs=1e-9)


@given(rewards, st.sampled_from(["none", "group"]))
def test_they_are_finite_and_sum_to_nought(group: list[float], scale: str) -> None:
    advantages = group_advantages(group, scale)
    assert len(advantages) == len(group)
    assert all(map(math.isfinite, advantages))
    assert sum(advantages) == pytest.approx(0, abs=1e-6)


@given(rewards)
def test_better_rewards_have_greater_advantages(group: list[float]) -> None:
    advantages = group_advantages(group, "group")
    for (a, b), (c, d) in zip(
        zip(group, advantages, strict=True), zip(group[1:], advantages[1:], strict=True), strict=False
    ):
        assert (b <= d) == (a <= c) or b == pytest.approx(d)
