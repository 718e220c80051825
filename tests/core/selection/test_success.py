"""Own success rates, and what single completions are compared with."""

from __future__ import annotations

import msgspec
import pytest
from fakes import scored

from shoal.selection.selection import OwnSuccess

LIVE, DEAD = (1.0, 0.0), (1.0, 1.0)


def test_a_rate_is_a_mean_and_then_a_moving_mean() -> None:
    success = OwnSuccess()
    success.observe([scored(LIVE), scored((0.0, 0.0)), scored(DEAD, task="other")])
    assert {task: rate for (task, _), (rate, _) in success.rates.items()} == {"say": 0.25, "other": 1.0}
    for _ in range(60):
        success.observe([scored(DEAD)])
    assert next(iter(success.rates.values()))[0] == pytest.approx(1, abs=0.01)
    success.observe([scored((0.0, 0.0))])
    assert next(iter(success.rates.values()))[0] == pytest.approx(0.9, abs=0.01)


@pytest.mark.parametrize(
    ("own", "reward", "baseline"),
    [
        (None, 1.0, None),  # it knows nothing of the task
        ((0.0, 0.0, 0.0, 1.0), 1.0, 0.25),
        ((0.0, 0.0, 0.0, 1.0), 0.0, 0.25),
        ((0.0, 0.0), 1.0, 0.0),
        ((0.0, 0.0), 0.0, None),  # as expected
        ((1.0, 1.0), 1.0, None),
        ((1.0, 1.0), 0.0, 1.0),
        ((1.0,) * 49 + (0.0,), 1.0, None),
        ((1.0,) * 9 + (0.0,), 1.0, 0.9),
    ],
)
def test_a_single_completion_is_compared_with_the_own_rate(
    own: tuple[float, ...] | None, reward: float, baseline: float | None
) -> None:
    success = OwnSuccess()
    success.observe([scored(LIVE, task="other"), *([scored(own)] if own else [])])
    single = scored((reward,), 2)
    usable = success.with_baseline(single)
    if baseline is None:
        assert usable is None
    else:
        assert usable is not None
        assert usable.baseline == pytest.approx(baseline)
        assert usable.has_signal
        assert usable.rollout is single.rollout


def test_groups_are_compared_with_their_own_mean() -> None:
    success = OwnSuccess()
    success.observe([scored((0.0, 0.0))])
    assert success.with_baseline(scored(DEAD)) is None
    assert success.with_baseline(scored(LIVE)) == scored(LIVE)


def test_rates_are_kept() -> None:
    before = OwnSuccess()
    before.observe([scored((1.0, 0.0, 0.0, 0.0))])
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(before), type=OwnSuccess)
    assert again.rates == before.rates != {}
