"""The time that is left."""

from __future__ import annotations

import pytest

from shoal.display.figures import Pace


def test_rounds_evaluations_and_checkpoints_count_apart() -> None:
    pace = Pace(rounds=20, every=10)
    pace.took(0, 30.0, evaluating=30.0)
    assert pace.left is None
    pace.took(1, 10.0)
    assert pace.left == pytest.approx(19 * 10 + 2 * 30)
    pace.took(2, 16.0, saving=6.0)
    assert pace.left == pytest.approx(18 * (10 + 6 / 3) + 2 * 30)
    for round in range(3, 20):
        pace.took(round, 50.0 if round == 10 else 5.0, evaluating=45.0 if round == 10 else 0.0)
    assert pace.left == pytest.approx(5 + 6 / 20 + 45)
    pace.took(20, 50.0, evaluating=45.0)
    assert pace.left == 0


def test_without_evaluations_between() -> None:
    pace = Pace(rounds=3, every=0)
    pace.took(1, 2.0)
    assert pace.left == pytest.approx(4.0)
