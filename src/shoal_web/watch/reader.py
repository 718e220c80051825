"""The process that reads the Parquet files of one run. Whatever they hold, they harm this process alone.

    python -m shoal_web.watch.reader       # `Tables` starts it, asks it over pipes, and ends it when it takes too long

It has bounded memory, cannot write, and its DuckDB may read the tables of the folder and nothing else.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from shoal.errors import UserError
from shoal.sandbox.guard import limit
from shoal.sandbox.pipes import Handler, serve

PATIENCE: Final = 10.0
"""Seconds for a query."""
MEMORY: Final = 512 << 20
"""Bytes that DuckDB may take, as it counts them."""
BEYOND: Final = 1024 << 20
"""Bytes of address space that the process may take in all beyond what it has when it is ready (on Linux)."""
REPLY: Final = 16 << 20
"""Bytes of an answer."""


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
        import duckdb
    except (OSError, ImportError) as error:
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
    import duckdb

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
