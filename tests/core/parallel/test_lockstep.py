"""The lockstep scheduler: who runs when, and how it ends."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable

import pytest

from shoal.parallel.lockstep import Lockstep


def pausing(lockstep: Lockstep, seen: list[str], name: str, pauses: int) -> Callable[[], str]:
    def call() -> str:
        for number in range(pauses):
            seen.append(f"{name}{number}")
            lockstep.pause()
        return name

    return call


def test_calls_take_turns_in_order() -> None:
    lockstep, seen = Lockstep(), list[str]()
    assert lockstep.run([pausing(lockstep, seen, name, n) for name, n in (("a", 3), ("b", 1), ("c", 2))]) == list("abc")
    assert seen == ["a0", "b0", "c0", "a1", "c1", "a2"]
    assert lockstep.run([]) == []


def test_outside_of_a_run_nothing_pauses() -> None:
    Lockstep().pause()


def test_an_error_ends_all_calls_and_is_raised() -> None:
    lockstep, seen = Lockstep(), list[str]()

    def fail() -> None:
        lockstep.pause()
        raise KeyError("b")

    before = threading.active_count()
    with pytest.raises(KeyError):
        lockstep.run([pausing(lockstep, seen, "a", 9), fail, pausing(lockstep, seen, "c", 9)])
    assert seen == ["a0", "c0", "a1"]
    assert threading.active_count() == before


def test_an_interrupt_does_not_wait_for_a_call_that_computes() -> None:
    lockstep, go_on, main = Lockstep(), threading.Event(), threading.get_ident()

    def compute() -> None:
        signal.pthread_kill(main, signal.SIGINT)
        go_on.wait(60)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    begun = time.monotonic()
    try:
        with pytest.raises(KeyboardInterrupt):
            lockstep.run([compute])
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 30
    go_on.set()
