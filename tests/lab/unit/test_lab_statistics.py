"""Statistics over swarm runs against hand-worked cases, scipy and simulations."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal_lab import contrasts
from shoal_lab.contrasts import Contrast, Pairs
from shoal_lab.statistics import (
    Interval,
    equivalence_test,
    holm,
    interquartile_mean,
    iqm_difference,
    iqm_interval,
    pairs_needed,
    relative_difference,
    sign_flip_test,
    smallest_p,
)

NUMBERS = st.integers(-(10**6), 10**6).map(lambda n: n / 1000)
PS = st.dictionaries(st.text(max_size=3), st.floats(0, 1), max_size=8)


# --- interquartile mean


def test_interquartile_mean_by_hand() -> None:
    assert interquartile_mean([100, 1, 2, 3, 4, 5, 6, -100]) == 3.5  # 2 cut at either end
    assert interquartile_mean([9, 1, 2, 3, -9]) == 2  # 1 of 5
    assert interquartile_mean([0, 0, 6]) == 2
    assert interquartile_mean([1, 50, 2, -50]) == 1.5


@given(st.lists(NUMBERS, min_size=1, max_size=30))
def test_interquartile_mean_is_scipys(values: list[float]) -> None:
    stats = pytest.importorskip("scipy.stats")
    assert interquartile_mean(values) == pytest.approx(stats.trim_mean(values, 0.25), abs=1e-9)


@pytest.mark.parametrize("scores", [[], [float("nan")], [1.0, float("inf")]])
def test_scores_must_be_finite(scores: list[float]) -> None:
    with pytest.raises(ValueError, match="finite"):
        interquartile_mean(scores)


def test_equal_runs_leave_nothing_open() -> None:
    assert iqm_interval([0.3] * 5) == Interval(0.3, 0.3, 0.3)
    assert iqm_interval([0.7]) == Interval(0.7, 0.7, 0.7)


def test_intervals_are_a_function_of_the_seed() -> None:
    scores = np.random.default_rng(0).normal(size=10)
    assert iqm_interval(scores, seed=3) == iqm_interval(scores, seed=3)
    assert iqm_interval(scores, seed=3) != iqm_interval(scores, seed=4)


def test_two_runs_give_three_means() -> None:
    """Of runs 0 and 1 a resample has mean 0, 1/2 or 1 with chance 1/4, 1/2, 1/4."""
    assert iqm_interval([0.0, 1.0]) == Interval(0.5, 0.0, 1.0)


def test_pairing_removes_what_seeds_share() -> None:
    rng = np.random.default_rng(0)
    control = rng.normal(0, 10, 12)
    treated = control + 1
    assert iqm_difference(treated, control) == Interval(1.0, pytest.approx(1.0), pytest.approx(1.0))
    with pytest.raises(ValueError, match="same runs"):
        iqm_difference(treated, control[:-1])


def test_intervals_cover_the_truth() -> None:
    """95 % intervals of 12 runs, on 300 simulated studies: a little below 95 % is known of percentile intervals."""
    rng = np.random.default_rng(7)
    level, difference = 0, 0
    for study in range(300):
        shared = rng.normal(size=12)
        treated, control = shared + rng.normal(0.5, 1, 12), shared + rng.normal(size=12)
        one = iqm_interval(treated, resamples=500, seed=study)
        both = iqm_difference(treated, control, resamples=500, seed=study)
        level += one.low <= 0.5 <= one.high
        difference += both.low <= 0.5 <= both.high
    for covered in (level, difference):
        assert 0.89 < covered / 300 < 0.99


def test_relative_difference() -> None:
    assert relative_difference([2.0, 4.0], [1.0, 2.0]) == Interval(1.0, 1.0, 1.0)  # twice in every seed
    assert relative_difference([1.0, 1.0], [0.0, 1.0]) is None  # a quarter of the resamples have nothing
    assert relative_difference([1.0, 1.0], [0.0, 0.0]) is None
    rare = relative_difference([2.0] * 9, [0.0] + [1.0] * 8)
    assert rare is not None
    assert rare.value == 1


# --- sign flips


def test_sign_flips_by_hand() -> None:
    # |±1 ±2 ±3| >= 6 for 2 of 8, >= 4 for 4 of 8
    assert sign_flip_test([1, 2, 3]).p == 0.25
    assert sign_flip_test([-1, 2, 3]).p == 0.5
    assert sign_flip_test([5.0]).p == 1
    assert sign_flip_test([0, 0, 0]).p == 1
    assert sign_flip_test([0.1, 0.2, 0.3, 0.4, 0.5]).p == 0.0625
    assert sign_flip_test([0.1] * 10).p == 2 / 1024
    with pytest.raises(ValueError, match="finite"):
        sign_flip_test([])
    with pytest.raises(ValueError, match="more than 20"):
        sign_flip_test([1.0] * 21)


def test_equivalence_by_hand() -> None:
    found = equivalence_test([0.0] * 6, 1.0)
    assert (found.p, found.beyond_p, found.smallest_p) == (1 / 64, 1, 1 / 64)
    assert equivalence_test([-2.0, 2.0], 1.0).p == 0.5  # -1 and 3 from below: a sum of 2 or more in 2 of 4 choices
    away = equivalence_test([2.0] * 6, 1.0)
    assert (away.p, away.beyond_p) == (1, 2 / 64)
    assert equivalence_test([-2.0] * 6, 1.0).beyond_p == 2 / 64
    assert equivalence_test([1.0] * 6, 1.0).p == 1  # on the margin
    with pytest.raises(ValueError, match="above 0"):
        equivalence_test([0.0], 0.0)


def test_equivalence_is_found_as_seldom_by_mistake_as_it_says() -> None:
    """Of runs that differ by the margin itself: in 5 % of cases at most, but for the noise of 2000 tries."""
    rng = np.random.default_rng(0)
    found = [equivalence_test(rng.normal(1.0, 1.0, 8), 1.0).p <= 0.05 for _ in range(2000)]
    assert np.mean(found) < 0.065
    sure = [equivalence_test(rng.normal(0.0, 0.3, 8), 1.0).p <= 0.05 for _ in range(200)]
    assert np.mean(sure) > 0.99


def test_contrasts_that_ask_for_equality_are_a_family_of_their_own() -> None:
    rng = np.random.default_rng(2)
    scores = {arm: dict(enumerate(rng.normal(mean, 0.01, 8))) for arm, mean in (("a", 1.0), ("b", 1.0), ("c", 1.2))}
    pairs = {"same": ("a", "b"), "other": ("a", "c"), "differ": ("c", "a")}
    same, other, differ = compare(scores, pairs, {"same": 0.05, "other": 0.05})
    assert (same.conclusive, same.beyond, same.contrasts) == (True, False, 2)
    assert same.adjusted_p == 2 / 256
    assert "may be said to be equal within ±0.05 (two one-sided tests, p = 0.00781" in same.sentence
    assert (other.conclusive, other.beyond, other.side) == (False, True, "below")
    assert (other.beyond_p, other.adjusted_beyond_p) == (2 / 256, 4 / 256)
    assert "may be said to be below that of c by more than 0.05 (p = 0.0156 after Holm" in other.sentence
    assert (differ.conclusive, differ.contrasts, differ.adjusted_p) == (True, 1, 2 / 256)
    [few] = compare(
        {arm: {s: v for s, v in by.items() if s < 3} for arm, by in scores.items()},
        {"same": ("a", "b")},
        {"same": 0.05},
    )
    assert "smallest p that can come out is 0.125, so nothing can reach 0.05; 5 seeds could." in few.sentence


def test_smallest_p() -> None:
    assert [smallest_p(n) for n in (0, 1, 5, 6, 10)] == [1, 1, 0.0625, 0.03125, 2 / 1024]
    assert sign_flip_test([1, 2, 3, 0, 0]).smallest_p == 0.25  # pairs that do not differ tell nothing
    assert (pairs_needed(), pairs_needed(4), pairs_needed(sides=1)) == (6, 8, 5)


@pytest.mark.parametrize("n", [2, 5, 9])
def test_sign_flips_are_scipys(n: int) -> None:
    stats = pytest.importorskip("scipy.stats")
    rng = np.random.default_rng(n)
    for _ in range(10):
        one, other = rng.normal(0.5, 1, n).round(1), rng.normal(0, 1, n).round(1)
        theirs = stats.permutation_test(
            (one, other),
            lambda x, y, axis: np.mean(x - y, axis=axis),
            permutation_type="samples",
            vectorized=True,
            n_resamples=np.inf,
        )
        assert sign_flip_test(one - other).p == pytest.approx(theirs.pvalue)


@given(st.lists(NUMBERS, min_size=1, max_size=10), st.randoms(use_true_random=False))
def test_sign_flips_know_no_side_and_no_order(values: list[float], order: object) -> None:
    result = sign_flip_test(values)
    assert sign_flip_test([-value for value in values]) == result
    assert sign_flip_test([4 * value for value in values]) == result
    assert sign_flip_test(sorted(values)).p == pytest.approx(result.p)
    assert smallest_p(len(values)) <= result.smallest_p <= result.p <= 1


def test_sign_flips_reject_as_often_as_they_say() -> None:
    rng = np.random.default_rng(3)
    rejected = np.mean([sign_flip_test(rng.normal(size=8)).p <= 0.05 for _ in range(1000)])
    assert 0.025 < rejected < 0.065  # 12 of 256 choices: 4.7 %


# --- Holm


def test_holm_by_hand() -> None:
    found = holm(pd.Series({"a": 0.01, "b": 0.04, "c": 0.03, "d": 0.005}))
    assert found.to_dict() == pytest.approx({"a": 0.03, "b": 0.06, "c": 0.06, "d": 0.02})
    assert list(found.index) == ["a", "b", "c", "d"]
    assert holm(pd.Series([0.04])).tolist() == [0.04]


@given(PS)
def test_holm_is_monotone_and_bounded(p: dict[str, float]) -> None:
    adjusted = holm(pd.Series(p, dtype=float))
    assert list(adjusted.index) == list(p)
    for name in p:
        assert p[name] <= adjusted[name] <= min(1, len(p) * p[name])
        assert all(adjusted[name] <= adjusted[other] for other in p if p[name] <= p[other])


@given(PS.filter(bool), st.floats(0, 1))
def test_holm_only_rises_with_p(p: dict[str, float], factor: float) -> None:
    first = next(iter(p))
    before, after = (holm(pd.Series(each)) for each in ({**p, first: factor * p[first]}, p))
    assert all(before[name] <= after[name] + 1e-12 for name in p)


# --- contrasts


def compare(
    scores: dict[str, dict[int, float]], named: dict[str, tuple[str, str]], margins: dict[str, float] | None = None
) -> list[Contrast]:
    """Arms by name."""
    margins = margins or {}
    return contrasts.compare([Pairs(n, a, b, scores[a], scores[b], margins.get(n)) for n, (a, b) in named.items()])


def arms(n: int, gain: float, noise: float = 0.0) -> dict[str, dict[int, float]]:
    rng = np.random.default_rng(1)
    control = {seed: 0.2 + 0.05 * rng.normal() for seed in range(n)}
    return {"4/4": {seed: value + gain + noise * rng.normal() for seed, value in control.items()}, "8/0": control}


def test_five_seeds_conclude_nothing() -> None:
    (found,) = compare(arms(5, 0.1, 0.01), {"sharing": ("4/4", "8/0")})
    assert (found.p, found.adjusted_p, found.seeds) == (0.0625, 0.0625, 5)
    assert found.difference.low > 0
    assert not found.conclusive
    assert "Nothing may be concluded: with 5 seeds the smallest p that can come out is 0.0625" in found.sentence
    assert "nothing can reach 0.05; 6 seeds could." in found.sentence
    assert "fewer than 10 seeds" in found.sentence


def test_ten_seeds_may_conclude() -> None:
    (found,) = compare(arms(10, 0.1, 0.01), {"sharing": ("4/4", "8/0")})
    assert found.p == found.adjusted_p == found.smallest_adjusted_p == 2 / 1024
    assert found.conclusive
    assert "The mean of 4/4 may be said to be above that of 8/0 (p = 0.00195) in this setting." in found.sentence
    (back,) = compare(arms(10, 0.1, 0.01), {"sharing": ("8/0", "4/4")})
    assert "The mean of 8/0 may be said to be below that of 4/4" in back.sentence
    assert back.difference.value == pytest.approx(-found.difference.value)


def test_no_difference_is_not_proof_of_none() -> None:
    (found,) = compare(arms(10, 0.0, 0.05), {"sharing": ("4/4", "8/0")})
    assert not found.conclusive
    assert "No difference may be concluded (p = " in found.sentence
    assert "Nor that there is none" in found.sentence


def test_adjustment_counts_all_contrasts() -> None:
    scores = arms(6, 0.1, 0.001)
    scores["2/6"] = {seed: value - 0.1 for seed, value in scores["8/0"].items()}
    named = {"a": ("4/4", "8/0"), "b": ("2/6", "8/0"), "c": ("4/4", "2/6")}
    found = compare(scores, named)
    assert [contrast.p for contrast in found] == [0.03125] * 3
    assert [contrast.adjusted_p for contrast in found] == [0.09375] * 3
    assert "after Holm's adjustment over 3 contrasts is 0.0938, so nothing can reach 0.05; 7 seeds" in found[0].sentence
    more = compare(arms(10, 0.1, 0.001) | {"2/6": arms(10, 0.0, 0.05)["4/4"]}, named)
    assert more[0].adjusted_p == 3 * 2 / 1024
    assert more[0].conclusive
    again = compare(arms(10, 0.1, 0.001) | {"2/6": arms(10, 0.0, 0.05)["4/4"]}, named)
    assert [each.sentence for each in more] == [each.sentence for each in again]


def test_a_p_that_only_the_adjustment_lifts_is_said_to_be_so() -> None:
    scores = {"a": dict(enumerate([1.0, 1, 1, 1, 1, 1, 1, -0.5])), "0": dict.fromkeys(range(8), 0.0)}
    found = compare(scores, {"x": ("a", "0"), "y": ("a", "0"), "z": ("0", "a"), "w": ("a", "0")})[0]
    assert found.p == 4 / 256
    assert found.adjusted_p == 16 / 256
    assert "though p = 0.0156 before the adjustment" in found.sentence


def test_a_gain_of_a_few_seeds_is_said_to_be_so() -> None:
    few = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, *[1.0] * 6]
    control = [0.0] * 12
    (found,) = compare({"a": dict(enumerate(few)), "b": dict(enumerate(control))}, {"x": ("a", "b")})
    assert found.conclusive
    assert found.smallest_adjusted_p == 2 / 64  # six pairs do not differ
    assert "a few seeds may carry it" in found.sentence


def test_seeds_of_one_arm_only_are_left_out_aloud() -> None:
    scores = arms(10, 0.1, 0.01)
    del scores["4/4"][3]
    scores["8/0"][99] = 0.0
    (found,) = compare(scores, {"sharing": ("4/4", "8/0")})
    assert (found.seeds, found.unpaired) == (9, (3, 99))
    assert "only one arm has them: seeds 3, 99." in found.sentence


def test_what_cannot_be_compared_is_an_error() -> None:
    with pytest.raises(ValueError, match="share no seed"):
        compare({"a": {1: 0.0}, "b": {2: 0.0}}, {"x": ("a", "b")})
    with pytest.raises(ValueError, match="finite"):
        compare({"a": {1: float("nan")}, "b": {1: 0.0}}, {"x": ("a", "b")})
    assert compare(arms(5, 0.1), {}) == []
