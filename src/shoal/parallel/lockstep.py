"""The lockstep scheduler: calls that take turns, so that what they wait for can be computed side by side.

Each call has a thread of its own, but only one thread runs at a time: in order, each until it pauses or ends, and again
from the first. So nothing has to be thread-safe, and a run is as repeatable as with a plain loop.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any


class Lockstep:
    """Calls that take turns.

    lockstep.run([first, second])     # each calls `lockstep.pause()` where another may go on
    """

    def __init__(self) -> None:
        self._here = threading.local()

    def run(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        """Makes these calls and returns their results. An error in one of them ends all and is raised."""
        turns = [_Turn(call, self._here) for call in calls]
        try:
            while going := [turn for turn in turns if not turn.done.done()]:
                for turn in going:
                    turn.resume()
            return [turn.done.result() for turn in turns]
        finally:
            for turn in turns:
                turn.cancel()

    def pause(self) -> None:
        """Returns once every other call of `run` has paused or ended; at once outside of `run`."""
        turn: _Turn | None = getattr(self._here, "turn", None)
        if turn is not None:
            turn.pause()


class _Cancelled(BaseException):
    """Ends a call whose result is no longer needed; no `except Exception` should catch it."""


class _Turn:
    """One call and its thread."""

    def __init__(self, call: Callable[[], Any], here: threading.local) -> None:
        self._call, self._here = call, here
        self.done: Future[Any] = Future()
        self._go, self._back = threading.Semaphore(0), threading.Semaphore(0)
        self._cancelled = self._runs = False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def resume(self) -> None:
        """Runs the call until it pauses or ends. Raises its error."""
        self._runs = True
        self._go.release()
        while not self._back.acquire(timeout=0.5):  # a signal just before a wait without a limit would not end it
            pass
        if self.done.done():
            self.done.result()

    def pause(self) -> None:
        self._runs = False
        self._back.release()
        self._go.acquire()
        if self._cancelled:
            raise _Cancelled

    def cancel(self) -> None:
        """Ends the call where it pauses. One that computes ends with the process: an interrupt does not wait for it."""
        self._cancelled = True
        self._go.release()
        if not self._runs:
            self._thread.join()

    def _run(self) -> None:
        self._go.acquire()
        if not self._cancelled:
            self._here.turn = self
            try:
                self.done.set_result(self._call())
            except BaseException as error:  # raised again by `resume`
                self.done.set_exception(error)
        self._runs = False
        self._back.release()
