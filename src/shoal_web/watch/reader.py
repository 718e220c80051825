"""The processes that read the Parquet files of runs. Whatever such files hold, they harm only the process that reads.

    python -m shoal_web.watch.reader                  # what a `Reader` starts, asks over pipes and ends

    reader = reader_of(folder)
    reader.ask(folder, "SELECT 1 + $n AS sum", {"n": 1})      # `Answer`: rows, or what went wrong

A process has bounded memory, cannot write, and its DuckDB may read the tables of the folder and nothing else. One that
runs into its limits is ended, and the next question starts another. All runs share a few.
"""

from __future__ import annotations

import os
import threading
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import duckdb
import msgspec

from shoal.child import command, limit
from shoal.errors import UserError
from shoal.runs.tables import TABLES
from shoal.sandbox.pipes import Handler, serve
from shoal.sandbox.process import GuardedProcess
from shoal_web.watch.source import BusyError

PATIENCE: Final = 10.0  # seconds for a query
MEMORY: Final = 512 << 20  # bytes that DuckDB may take, as it counts them
BEYOND: Final = 1024 << 20
"""Bytes of address space that the process may take in all beyond what it has when it is ready (on Linux)."""
ARCHIVED: Final = "completions", "groups"  # the tables of an archive
REPLY: Final = 16 << 20  # bytes of an answer
COMMAND: Final = command("shoal_web.watch.reader")


class Ask(msgspec.Struct, frozen=True):
    """A query, in which `values` stand as `$name`, and files as their path within `folder`."""

    folder: bytes
    query: str
    values: dict[str, Any]


class Answer(msgspec.Struct, frozen=True):
    """The rows, or why there are none."""

    rows: list[dict[str, Any]] = []
    error: str = ""
    spent: bool = False
    """It took too much time or memory: end this process, as little may be left of either."""


def prepare(start: bytes) -> Handler:
    """Answers queries, each with the folder it is about as the working directory."""
    limit(BEYOND)
    asks = msgspec.msgpack.Decoder(Ask)
    latest, database = b"", duckdb.connect(":memory:")

    def handle(data: bytes) -> Iterator[msgspec.Raw]:
        nonlocal latest, database
        ask = asks.decode(data)
        try:
            os.chdir(ask.folder)
            if ask.folder != latest:
                database.close()  # two would not fit
                latest, database = ask.folder, database_here()
            found = answer(database, ask)
        except OSError as error:
            found = Answer(error=str(error))
        yield msgspec.Raw(msgspec.msgpack.encode(found))

    return handle


def database_here() -> Any:
    """A database that can read the tables in the working directory."""
    database = duckdb.connect(":memory:")
    for setting in (
        "threads = 2",
        f"memory_limit = '{MEMORY >> 20}MiB'",
        "temp_directory = ''",
        "autoinstall_known_extensions = false",
        "autoload_known_extensions = false",
        f"allowed_directories = {[*TABLES, *ARCHIVED]}",
        "enable_external_access = false",
        "lock_configuration = true",
    ):
        database.execute(f"SET {setting}")
    return database


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
        os._exit(1)  # the reader was closed before this process was ready


class Reader:
    """Asks a process, which is started by the first question. Close it."""

    def __init__(self) -> None:
        self._process = GuardedProcess(COMMAND, None)
        self._turn = threading.Lock()

    def close(self) -> None:
        """Ends the process, unless it is at work; the next query starts another."""
        if self._turn.acquire(timeout=1.0):
            try:
                self._process.close()
            finally:
                self._turn.release()

    def ask(self, folder: Path, query: str, values: Mapping[str, Any] | None = None) -> Answer:
        """What the process answers, or what is wrong. One query at a time; none waits for ever. Raises `BusyError`."""
        if not self._turn.acquire(timeout=2 * PATIENCE):
            raise BusyError("other runs are being read; ask again")
        try:
            self._process.send(Ask(os.fsencode(folder), query, dict(values or {})))
            found = msgspec.msgpack.decode(self._process.receive(2 * PATIENCE, wall=PATIENCE + 5.0), type=Answer)
            if found.spent:
                self._process.close()
            return found
        except UserError as error:
            self._process.close()
            raise BusyError(f"the run cannot be read: {error}") from error
        except (TimeoutError, EOFError):
            self._process.close()
            return Answer(error="that took too much memory, or too long", spent=True)
        finally:
            self._turn.release()


READERS: Final = tuple(Reader() for _ in range(3))


def reader_of(folder: Path) -> Reader:
    """The one that reads this folder: it may keep those with the same reader waiting, and no others."""
    return READERS[zlib.crc32(os.fsencode(folder)) % len(READERS)]
