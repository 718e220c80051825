"""Ends in order when the system says so."""

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

HANGUP: Final = [signal.SIGHUP] if hasattr(signal, "SIGHUP") else []
"""Sent when a terminal closes; Windows has none."""
STOPS: Final = [signal.SIGINT, signal.SIGTERM, *HANGUP]
ONCE: Final = 1.0
"""Seconds in which several SIGTERM are one: `timeout` and launchers send it to a process and to its group."""


@contextmanager
def on_stop(call: Callable[[], None]) -> Iterator[None]:
    """SIGINT, SIGTERM and SIGHUP call this, in place of ending the process.

    SIGHUP does so only as the first: shell and system both send it. Under `nohup` it does nothing.
    """
    first: float | None = None

    def stop(number: int, _: FrameType | None) -> None:
        nonlocal first
        if first is not None and (number in HANGUP or (number == signal.SIGTERM and time.monotonic() < first + ONCE)):
            return
        first = time.monotonic() if first is None else first
        call()

    handled = [number for number in STOPS if number not in HANGUP or signal.getsignal(number) != signal.SIG_IGN]
    previous = {number: signal.signal(number, stop) for number in handled}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def leave_stops_to_parent() -> None:
    """In a child: signals that ask to stop, which go to whole groups of processes, are for the parent, which ends it.
    What the child starts gets them as usual: a handler ends with `exec`, and `SIG_IGN` would not."""
    for number in STOPS:
        signal.signal(number, lambda *_: None)
