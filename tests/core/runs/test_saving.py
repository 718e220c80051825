"""When checkpoints are written: never more than 5 % of the time, whatever they take."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from shoal.runs.run import SPEED, Saving


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@given(
    st.floats(0.01, 100),
    st.lists(st.floats(0.01, 50), min_size=1, max_size=300),
)
def test_they_take_at_most_a_twentieth_and_come_at_last(seconds: float, rounds: list[float]) -> None:
    """Checkpoints take as long as expected. Only the last one, which always comes, may be too much by itself."""
    clock = Clock()
    saving = Saving("auto", int(seconds * SPEED), clock)

    def save() -> None:
        with saving.timed():
            clock.now += seconds

    lost = 0.0
    for number, length in enumerate(rounds, 1):
        clock.now += length
        lost += length
        if saving.is_due(number):
            save()
            lost = 0.0
        assert lost <= 40 * 1.01 * seconds + length
    before = saving.seconds
    save()
    if before:
        assert saving.seconds <= 0.051 * (clock.now - 100)


def test_a_slow_disk_is_noticed() -> None:
    clock = Clock()
    saving = Saving("auto", int(SPEED), clock)
    clock.now += 40
    assert saving.is_due(1)
    with saving.timed():
        clock.now += 30
    assert saving.seconds == saving.expected == 30
    clock.now += 60 * 20
    assert not saving.is_due(2)
    clock.now += 60 * 20
    assert saving.is_due(3)


def test_rounds_that_were_asked_for() -> None:
    assert [round for round in range(7) if Saving(3, 10**15).is_due(round)] == [0, 3, 6]
    assert not any(Saving(0, 0).is_due(round) for round in range(7))
