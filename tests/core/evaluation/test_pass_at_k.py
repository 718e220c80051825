"""The judge's figures against counting and against published ones."""

from __future__ import annotations

import math
from itertools import combinations

import pytest
from fakes import RIGHT, WRONG, Exact, Parrot, question
from hypothesis import given
from hypothesis import strategies as st

from shoal.evaluation.pass_at_k import Evaluation, evaluate, wilson
from shoal.rollout import QuestionId


@pytest.mark.parametrize("samples", [1, 2, 5, 7])
def test_pass_at_k_is_what_counting_gives(samples: int) -> None:
    for correct in range(samples + 1):
        answers = [number < correct for number in range(samples)]
        for k in range(1, samples + 1):
            subsets = [any(chosen) for chosen in combinations(answers, k)]
            counted = sum(subsets) / len(subsets)
            assert Evaluation(samples, {"t": [correct]}).pass_at(k).value == pytest.approx(counted)


def test_means_are_over_questions() -> None:
    result = Evaluation(4, {"sum": [4, 0], "gcd": [2]})
    assert result.pass_at(1).value == pytest.approx((1 + 0 + 0.5) / 3)
    assert result.pass_at(1, "sum").value == 0.5
    assert result.pass_at(4, "gcd").value == 1
    estimate = result.pass_at(1, "sum")
    assert (estimate.low, estimate.high) == wilson(0.5, 2)


@pytest.mark.parametrize("k", [0, -1, 5])
def test_k_must_be_within_the_samples(k: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        Evaluation(4, {"t": [1]}).pass_at(k)


def test_nothing_asked_is_nothing_known() -> None:
    estimate = Evaluation(4, {"t": []}).pass_at(1)
    assert math.isnan(estimate.value)
    assert (estimate.low, estimate.high) == (0, 1)


@pytest.mark.parametrize(
    ("successes", "n", "low", "high"),
    [
        # R. G. Newcombe, Statistics in Medicine 17 (1998), table I, method 3
        (81, 263, 0.2553, 0.3662),
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
        # well known
        (0, 10, 0.0000, 0.2775),
        (5, 10, 0.2366, 0.7634),
        (10, 10, 0.7225, 1.0000),
    ],
)
def test_wilson_gives_published_values(successes: int, n: int, low: float, high: float) -> None:
    assert wilson(successes / n, n) == pytest.approx((low, high), abs=6e-5)


@given(st.floats(0, 1), st.integers(1, 10**6))
def test_wilson_holds_the_proportion_and_mirrors(proportion: float, n: int) -> None:
    low, high = wilson(proportion, n)
    assert 0 <= low <= proportion + 1e-12
    assert proportion - 1e-12 <= high <= 1
    assert wilson(1 - proportion, n) == pytest.approx((1 - high, 1 - low), abs=1e-9)


class Marks(Exact):
    """A verifier that gives what the answer says."""

    def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]:  # type: ignore[override]
        return [[float(text) for text in texts] for _, texts in items]


def test_full_rewards_alone_count() -> None:
    policy = Parrot("1", "0.999", "0.5", "1.0", "0")
    result = evaluate(policy, Marks(), {"t": [question(5)]}, samples=5, seed=3)
    assert result == Evaluation(5, {"t": [2]})
    assert policy.seeds == [3]


def test_each_task_gets_its_own_questions_back() -> None:
    questions = {"a": [question(5), question(10)], "none": [], "b": [question(15)]}

    class Knows(Exact):
        def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]:  # type: ignore[override]
            self.asked += items
            return [[float(id.index == 10 and text == RIGHT) for text in texts] for id, texts in items]

    verifier = Knows()
    result = evaluate(Parrot(RIGHT, WRONG), verifier, questions, samples=4, seed=0)
    assert result.correct == {"a": [0, 2], "none": [], "b": [0]}
    assert [id.index for id, _ in verifier.asked] == [5, 10, 15]
    assert all(texts == [RIGHT, WRONG, RIGHT, WRONG] for _, texts in verifier.asked)
    assert result.pass_at(1).value == pytest.approx(0.5 / 3)
