"""The process that reads the Parquet files of one run (`reader`). Of all runs together there are few.

    reader = RunReader(folder)
    reader.ask("SELECT 1 + $n AS sum", {"n": 1})      # `Answer`: rows, or what went wrong

A process that runs into its limits is ended, and the next question starts another.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import msgspec

from shoal.child import command
from shoal.errors import UserError
from shoal.runs.tables import TABLES
from shoal.sandbox.process import GuardedProcess
from shoal_web.watch.reader import PATIENCE, Answer, Ask, Start
from shoal_web.watch.source import BusyError

COMMAND: Final = command("shoal_web.watch.reader")
READERS: Final = 3
"""Processes at a time, of all runs: people look at runs one by one."""
_answers = msgspec.msgpack.Decoder(Answer)


class Reader(GuardedProcess):
    """One process of `shoal_web.watch.reader`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(COMMAND, Start(os.fsencode(folder), list(TABLES)))

    def ask(self, query: str, values: Mapping[str, Any]) -> Answer:
        """Raises `TimeoutError` or `EOFError` if no answer comes, `UserError` if it cannot be started."""
        self.send(Ask(query, dict(values)))
        return _answers.decode(self.receive(2 * PATIENCE, wall=PATIENCE + 5.0))

    def kill(self) -> None:
        """Ends it from another thread: whoever waits for its answer gets an `EOFError`."""
        if (pid := self._pid) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)


class RunReader:
    """Asks the process that reads the run in `folder`, which is started by the first question. Close it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._turn = threading.Lock()
        self.process: Reader | None = None

    def close(self) -> None:
        """Ends the reader, whatever it does; the next query starts another."""
        process = self.process
        if self._turn.acquire(blocking=False):
            try:
                self._end()
            finally:
                self._turn.release()
        elif process is not None:
            process.kill()  # who waits for it does the rest

    def ask(self, query: str, values: Mapping[str, Any] | None = None) -> Answer:
        """What the reader answers, or what is wrong. Raises `BusyError`."""
        with self._alone(2 * PATIENCE, "the run is busy; ask again"):
            try:
                if self.process is None:
                    _make_room(self)
                    self.process = Reader(self._folder)
                found = self.process.ask(query, values or {})
            except UserError as error:
                self._end()
                raise BusyError(f"the run cannot be read: {error}") from error
            except (TimeoutError, EOFError):
                found = Answer(error="that took too much memory, or too long", spent=True)
            if found.spent:
                self._end()
            return found

    @contextmanager
    def _alone(self, seconds: float, busy: str) -> Iterator[None]:
        """One query at a time; none waits for ever."""
        if not self._turn.acquire(timeout=seconds):
            raise BusyError(busy)
        try:
            yield
        finally:
            self._turn.release()

    def _end(self) -> None:
        if self.process is not None:
            self.process.close()
            self.process = None
        _reading.pop(self, None)


_reading: dict[RunReader, None] = {}
"""Those that have a reader, oldest reader first."""
_room = threading.Lock()


def _make_room(reader: RunReader) -> None:
    """Ends readers of others until there are few enough for one more. Raises `BusyError`."""
    with _room:
        others = list(_reading)
        for other in others[: max(0, len(others) + 1 - READERS)]:
            with other._alone(PATIENCE, "other runs are being read; ask again"):
                other._end()
        _reading[reader] = None
