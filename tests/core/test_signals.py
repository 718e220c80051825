"""Which signals end a program in order, and how often they count."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator

import pytest

from shoal.signals import leave_stops_to_parent, on_stop

pytestmark = pytest.mark.skipif(os.name == "nt", reason="needs signals")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


def heard(*numbers: int, pause: Callable[[], None] = lambda: None) -> int:
    """How often the function is called."""
    calls: list[None] = []
    with on_stop(lambda: calls.append(None)):
        for number in numbers:
            os.kill(os.getpid(), number)
            pause()
    return len(calls)


@pytest.mark.parametrize(
    ("numbers", "count"),
    [
        ([signal.SIGINT], 1),
        ([signal.SIGTERM], 1),
        ([signal.SIGHUP], 1),
        ([signal.SIGINT, signal.SIGINT], 2),
        ([signal.SIGTERM, signal.SIGTERM], 1),  # `timeout` sends it to the process and to its group
        ([signal.SIGHUP, signal.SIGHUP], 1),  # so do the system and the shell
        ([signal.SIGTERM, signal.SIGHUP], 1),
        ([signal.SIGHUP, signal.SIGINT], 2),
    ],
)
def test_a_request_to_stop_counts_once(numbers: list[int], count: int) -> None:
    assert heard(*numbers) == count


def test_a_second_sigterm_counts_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("shoal.signals.time.monotonic", lambda: now)

    def wait() -> None:
        nonlocal now
        now += 2.0

    assert heard(signal.SIGTERM, signal.SIGTERM, pause=wait) == 2


def test_nohup_keeps_a_run_going() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    assert heard(signal.SIGHUP) == 0
    assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN


def test_a_child_leaves_them_to_its_parent() -> None:
    leave_stops_to_parent()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(os.getpid(), number)
