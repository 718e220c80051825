"""The process that reads the Parquet files of one run. Whatever they hold, they harm this process alone.

    python -m shoal_web.watch.reader                  # what `RunReader` starts, asks over pipes and ends

    reader = RunReader(folder)
    reader.ask("SELECT 1 + $n AS sum", {"n": 1})      # `Answer`: rows, or what went wrong

It has bounded memory, cannot write, and its DuckDB may read the tables of the folder and nothing else. A process that
runs into its limits is ended, and the next question starts another. Of all runs together there are few.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from shoal.child import command
from shoal.errors import UserError
from shoal.runs.tables import TABLES
from shoal.sandbox.guard import limit
from shoal.sandbox.pipes import Handler, serve
from shoal.sandbox.process import GuardedProcess
from shoal_web.watch.source import BusyError

PATIENCE: Final = 10.0
"""Seconds for a query."""
MEMORY: Final = 512 << 20
"""Bytes that DuckDB may take, as it counts them."""
BEYOND: Final = 1024 << 20
"""Bytes of address space that the process may take in all beyond what it has when it is ready (on Linux)."""
REPLY: Final = 16 << 20
"""Bytes of an answer."""
COMMAND: Final = command("shoal_web.watch.reader")
READERS: Final = 3
"""Processes at a time, of all runs: people look at runs one by one."""
_reading: dict[RunReader, None] = {}
"""Those that have a reader, oldest reader first."""
_room = threading.Lock()


class Start(msgspec.Struct, frozen=True):
    """Which folder to read, and which of the folders in it."""

    folder: bytes
    tables: list[str]


class Ask(msgspec.Struct, frozen=True):
    """A query, in which `values` stand as `$name`, and files as their path within the folder."""

    query: str
    values: dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """The rows, or why there are none."""

    rows: list[dict[str, Any]] = []
    error: str = ""
    spent: bool = False
    """It took too much time or memory: end this process, as little may be left of either."""


def prepare(start: bytes) -> Handler:
    """Answers queries about the folder that `start` names. Raises `UserError` if there is none."""
    told = msgspec.msgpack.decode(start, type=Start)
    try:
        os.chdir(told.folder)
    except OSError as error:
        raise UserError(str(error)) from error
    database = duckdb.connect(":memory:")
    for setting in (
        "threads = 2",
        f"memory_limit = '{MEMORY >> 20}MiB'",
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"allowed_directories = {told.tables}",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        database.execute(f"SET {setting}")
    limit(BEYOND)
    asks = msgspec.msgpack.Decoder(Ask)

    def handle(data: bytes) -> Iterator[msgspec.Raw]:
        yield msgspec.Raw(msgspec.msgpack.encode(answer(database, asks.decode(data))))

    return handle


def answer(database: Any, ask: Ask) -> Answer:
    """Hostile files can raise anything here, also while values become Python's."""
    cursor = database.cursor()
    timer = threading.Timer(PATIENCE, cursor.interrupt)
    timer.start()
    try:
        cursor.execute(ask.query, ask.values)
        names = [column[0] for column in cursor.description or ()]
        rows: list[dict[str, Any]] = []
        size = 0
        while found := cursor.fetchmany(256):
            more = [dict(zip(names, row, strict=True)) for row in found]
            size += len(msgspec.msgpack.encode(more))
            if size > REPLY:
                return Answer(error="there is too much text in it")
            rows += more
        return Answer(rows)
    except duckdb.InterruptException:
        return Answer(error="that took too long; ask for less", spent=True)
    except (duckdb.OutOfMemoryException, MemoryError):
        return Answer(error="that took too much memory", spent=True)
    except Exception as error:
        lines = str(error).splitlines() or [type(error).__name__]
        return Answer(error=lines[0][:200].encode(errors="replace").decode())
    finally:
        timer.cancel()
        cursor.close()


def main() -> None:
    """Serves until the other end is closed."""
    try:
        serve(prepare)
    except BrokenPipeError:
        os._exit(1)  # `Tables` was closed before this process was ready


class RunReader:
    """Asks the process that reads the run in `folder`, which is started by the first question. Close it."""

    def __init__(self, folder: Path) -> None:
        self._process = GuardedProcess(COMMAND, Start(os.fsencode(folder), list(TABLES)))
        self._turn = threading.Lock()

    def close(self) -> None:
        """Ends the process; the next query starts another. One that is at work stays until other runs are read."""
        if self._turn.acquire(timeout=1.0):
            try:
                self._end()
            finally:
                self._turn.release()

    def ask(self, query: str, values: Mapping[str, Any] | None = None) -> Answer:
        """What the process answers, or what is wrong. Raises `BusyError`."""
        with self._alone(2 * PATIENCE, "the run is busy; ask again"):
            try:
                if self not in _reading:
                    _make_room(self)
                self._process.send(Ask(query, dict(values or {})))
                data = self._process.receive(2 * PATIENCE, wall=PATIENCE + 5.0)
                found = msgspec.msgpack.decode(data, type=Answer)
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
        self._process.close()
        _reading.pop(self, None)


def _make_room(reader: RunReader) -> None:
    """Ends readers of others until there are few enough for one more. Raises `BusyError`."""
    with _room:
        others = list(_reading)
        for other in others[: max(0, len(others) + 1 - READERS)]:
            with other._alone(PATIENCE, "other runs are being read; ask again"):
                other._end()
        _reading[reader] = None
