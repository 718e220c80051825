"""Ends in order when the system says so."""

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def on_stop(call: Callable[[], None]) -> Iterator[None]:
    """SIGINT and SIGTERM call this, in place of ending the process."""
    previous = {number: signal.signal(number, lambda *_: call()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
