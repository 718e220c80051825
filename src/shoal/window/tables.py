"""A DuckDB over the Parquet files of one run. It reads that folder and nothing else, and writes nothing.

    tables = Tables(folder)
    tables.parts(ROLLOUTS)                    # number (its first round) and path of each part, oldest first
    tables.rows("SELECT 1 + $n AS sum", {"n": 1})

Parts are replaced while a run writes them: what fails for that is asked once more.
"""

from __future__ import annotations

import contextlib
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import duckdb

PATIENCE = 10.0
"""Seconds after which a query is given up."""
AT_ONCE = threading.BoundedSemaphore(4)
"""Queries at a time, of all tables."""
MEMORY = "2GB"
"""Of DuckDB, for each run."""

Row = dict[str, Any]


class BusyError(Exception):
    """It took too long, or the files could not be read."""


class Tables:
    """Queries to the tables of the run in `folder`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self._lock = threading.Lock()
        self._database: duckdb.DuckDBPyConnection | None = None

    def parts(self, table: str) -> dict[int, Path]:
        """The parts of a table by their first rounds, in that order."""
        found = {}
        with contextlib.suppress(OSError):
            for path in (self._folder / table).glob("from-round-*.parquet"):
                if match := re.fullmatch(r"from-round-(\d{1,15})\.parquet", path.name):
                    found[int(match[1])] = path
        return dict(sorted(found.items()))

    def mark(self, table: str) -> tuple[tuple[int, int, int], ...]:
        """Another value when the table has changed."""
        marks = []
        for number, path in self.parts(table).items():
            with contextlib.suppress(OSError):
                at = path.stat()
                marks.append((number, at.st_size, at.st_mtime_ns))
        return tuple(marks)

    def rows(self, query: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """The answer to `query`, in which `values` stand as `$name`. Raises `BusyError`."""
        for attempt in (1, 2):
            try:
                return self._ask(query, values)
            except duckdb.InterruptException as error:
                raise BusyError("that took too long; ask for less") from error
            except duckdb.Error as error:
                if attempt == 2:
                    raise BusyError("the files of the run cannot be read just now") from error
        raise AssertionError

    def _ask(self, query: str, values: Mapping[str, Any] | None) -> list[Row]:
        cursor = self._open().cursor()
        with AT_ONCE:
            timer = threading.Timer(PATIENCE, cursor.interrupt)
            timer.start()
            try:
                cursor.execute(query, dict(values or {}))
                names = [column[0] for column in cursor.description or ()]
                return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]
            finally:
                timer.cancel()
                cursor.close()

    def _open(self) -> duckdb.DuckDBPyConnection:
        with self._lock:
            if self._database is None:
                database = duckdb.connect(":memory:")
                database.execute("SET autoinstall_known_extensions = false")
                database.execute("SET autoload_known_extensions = false")
                database.execute(f"SET memory_limit = '{MEMORY}'")
                database.execute("SET temp_directory = ''")
                database.execute(f"SET allowed_directories = [{quoted(str(self._folder))}]")
                database.execute("SET enable_external_access = false")
                database.execute("SET lock_configuration = true")
                self._database = database
            return self._database

    def close(self) -> None:
        with self._lock:
            if self._database is not None:
                self._database.close()
                self._database = None


def quoted(text: str) -> str:
    """`text` as SQL says it."""
    return "'" + text.replace("'", "''") + "'"


def parquet(paths: Iterable[Path]) -> str:
    """SQL for the rows of these files, with `part` and `row`, their places. The paths are of `Tables.parts`."""
    files = ", ".join(quoted(str(path)) for path in paths)
    part = r"CAST(regexp_extract(filename, 'from-round-(\d+)\.parquet$', 1) AS BIGINT)"
    source = f"read_parquet([{files}], filename = true, file_row_number = true)"
    return f"(SELECT *, {part} AS part, file_row_number AS row FROM {source})"
