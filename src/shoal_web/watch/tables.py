"""Queries over the Parquet files of one run, in another process (`reader`) that hostile files cannot leave.

    tables = Tables(folder)
    tables.parts(ROLLOUTS)                    # number (its first round) and path of each part, oldest first
    tables.trouble                            # which parts are left out, and why

A part counts if it is a regular file with the columns and a size that runs write. One that lies about its size runs
into the reader's limits. Runs replace parts while they write them, so a query that fails is tried once more.
"""

import itertools
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from shoal.runs.tables import FOOTER, GROUPS, LATER, OLD_NAMES, ROWS, TABLES
from shoal.untrusted import open_regular
from shoal_web.watch.reader import reader_of
from shoal_web.watch.source import WHOLE, BusyError

ENTRIES, PARTS = 20_000, 4096  # names in a table's folder that are looked at, and parts that are taken, the newest
BYTES = 512 << 20  # of one part when it is read
TYPES: Final = {"int64": "BIGINT", "string": "VARCHAR", "double": "DOUBLE", "bool": "BOOLEAN"}
COLUMNS: Final = {name: {each.name: TYPES[str(each.type)] for each in schema} for name, schema in TABLES.items()}
"""Of each table, with their types in SQL."""
HELD: Final = f"CASE WHEN length(conversation) <= {WHOLE} THEN conversation END AS conversation"
"""SQL for a conversation that is not too long to be shown."""

Row = dict[str, Any]
Mark = tuple[int, int, int]
"""Of a part: its number, size and time of change."""


class Tables:
    """Queries to the tables of the run in `folder`. Close it."""

    columns: Mapping[str, Mapping[str, str]] = COLUMNS
    pattern = r"from-round-([0-9]{1,15})\.parquet"
    """Of a part's name, with its number."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder.resolve()
        self.reader = reader_of(self._folder)
        self._faults: dict[str, list[str]] = {}
        """Of each table: the parts that cannot be read, and why."""
        self._fault = lru_cache(2 * PARTS)(self._fault_of)  # checked once for each state of a file

    @property
    def trouble(self) -> str:
        """Which part cannot be read and why, or nothing."""
        wrong = [fault for faults in list(self._faults.values()) for fault in faults]
        more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        return f"cannot be read: {wrong[0]}{more}" if wrong else ""

    def parts(self, table: str) -> dict[int, Path]:
        """The readable parts of a table by their first rounds, in that order. Raises `BusyError`."""
        if (self._folder / table).is_symlink():
            self._faults[table] = [f"{table} (it is a symbolic link, and only folders are read)"]
            return {}
        checked = [(mark[0], path, self._fault(table, mark, path)) for mark, path in self._there(table)]
        self._faults[table] = [f"{table}/{path.name} ({reason})" for _, path, reason in checked if reason]
        return {number: path for number, path, reason in checked if not reason}

    def all(self, table: str) -> str:
        """SQL for all rows of a table, with their places `part` and `row`. Raises `BusyError`."""
        return self.some(table, self.parts(table))

    def some(self, table: str, parts: Mapping[int, Path]) -> str:
        """SQL for the rows of these of its `parts`; columns that they lack are null, and old ones have the names of
        today."""
        old = {name: old for name, old in OLD_NAMES.items() if name in self.columns[table]}
        types = {**self.columns[table], **{old[name]: self.columns[table][name] for name in old}}
        empty = ", ".join(f'NULL::{kind} AS "{name}"' for name, kind in types.items())
        rows = f"SELECT {empty}, NULL::BIGINT AS part, NULL::BIGINT AS row WHERE false"
        if parts:
            names = ", ".join(quoted(path.name) for path in parts.values())
            files = ", ".join(quoted(f"{path.parent.name}/{path.name}") for path in parts.values())
            part = f"{list(parts)}[list_position([{names}], parse_filename(filename))]"
            source = f"read_parquet([{files}], filename = true, file_row_number = true, union_by_name = true)"
            rows += f" UNION ALL BY NAME SELECT *, {part} AS part, file_row_number AS row FROM {source}"
        for name, before in old.items():
            rows = f'SELECT * EXCLUDE "{before}" REPLACE (coalesce("{name}", "{before}") AS "{name}") FROM ({rows})'
        return f"({rows})"

    def mark(self, table: str) -> tuple[Mark, ...]:
        """Another value when the table has changed."""
        return tuple(mark for mark, _ in self._there(table))

    def rows(self, query: str, values: Mapping[str, Any] | None = None) -> list[Row]:
        """The answer to `query`, in which `values` stand as `$name`. Raises `BusyError`."""
        found = self.reader.ask(self._folder, query, values)
        if found.error and not found.spent:
            found = self.reader.ask(self._folder, query, values)
        if found.error:
            raise BusyError(f"the run cannot be read: {found.error}")
        return found.rows

    def close(self) -> None:
        """Ends the reader and forgets what was checked; the next query starts another."""
        self.reader.close()
        self._fault.cache_clear()

    def _there(self, table: str) -> list[tuple[Mark, Path]]:
        room, found = self._folder / table, []
        with suppress(OSError), os.scandir(room) as entries:
            for entry in itertools.islice(entries, ENTRIES):
                if match := re.fullmatch(self.pattern, entry.name):
                    found.append((int(match[1]), room / entry.name))
        marks = []
        for number, path in sorted(found)[-PARTS:]:
            with suppress(OSError):
                at = path.lstat()
                marks.append(((number, at.st_size, at.st_mtime_ns), path))
        return marks

    def _fault_of(self, table: str, mark: Mark, path: Path) -> str:
        """Why a part in this state cannot be read, or nothing. Raises `BusyError` where the reader does not say: that
        need not be the part's fault."""
        try:
            with open_regular(path, follow_links=False) as file:
                file.seek(-min(8, mark[1]), os.SEEK_END)
                end = file.read(8)
        except OSError as error:
            return error.strerror or str(error)
        if end[4:] != b"PAR1":
            return "it is no Parquet file"
        if int.from_bytes(end[:4], "little") > FOOTER:
            return "its footer is too large"
        name = quoted(f"{table}/{path.name}")
        found = self.reader.ask(
            self._folder,
            f"SELECT (SELECT list([column_name, column_type]) FROM (DESCRIBE FROM read_parquet({name}))) AS columns, "
            "count(DISTINCT row_group_id) AS groups, coalesce(sum(total_uncompressed_size), 0)::DOUBLE AS bytes, "
            f"(SELECT sum(num_rows)::DOUBLE FROM parquet_file_metadata({name})) AS rows FROM parquet_metadata({name})",
        )
        if found.spent:
            raise BusyError(f"{table}/{path.name} cannot be checked: {found.error}")
        if found.error:
            return found.error
        [size] = found.rows
        types = dict(size["columns"])
        for column, kind in self.columns[table].items():
            found_types = [types[name] for name in (column, OLD_NAMES.get(column)) if name in types]
            is_missing = not found_types and column not in LATER
            if is_missing or any(each != kind for each in found_types):
                return f"its column {column} is not what runs write"
        if size["groups"] <= GROUPS and 0 <= size["rows"] <= ROWS and 0 <= size["bytes"] <= BYTES:
            return ""
        return f"it has {size['groups']} groups, {size['rows']:.0f} rows and {size['bytes']:.0f} bytes"


def quoted(text: str) -> str:
    """`text` as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"
