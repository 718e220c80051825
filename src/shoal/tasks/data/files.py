"""The rows of one file: CSV of any spreadsheet, Excel, OpenDocument, JSON, parquet, Arrow; packed or not.

    table = read_file(Path("quiz.csv"))
    list(table.rows())              # [(2, {"question": "2 + 2 =", "answer": "4"}), ...]

A row has the number by which a person finds it in the file. A row that is not even readable comes as an `Unusable`.
pyarrow, which starts threads, is imported where a file is read: what scores answers (`sandbox.process`) has to fork.
"""

import codecs
import csv
import io
import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from shoal.errors import UserError, in_brief
from shoal.tasks.data.rows import MOST_BYTES, Unusable
from shoal.untrusted import open_regular, printable

TEXTS: Final = (".csv", ".tsv", ".txt")
SHEETS: Final = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
JSONS: Final = (".jsonl", ".ndjson", ".json")
TABLES: Final = (".parquet", ".arrow", ".feather")
PACKED: Final = {".gz": "gzip", ".zst": "zstd"}
FORMATS: Final = tuple(
    ending + packed
    for ending in (*TEXTS, *SHEETS, *JSONS, *TABLES)
    for packed in ("", *PACKED)
    if not packed or ending in (*TEXTS, *JSONS)
)
"""Endings of the files that are read."""
MOST_COLUMNS: Final = 10_000
"""Of a table in CSV: each row takes a place for each of them."""
BATCH: Final = 256
"""Rows of a table that are read at once."""
MOST_ARRAY: Final = 2**30
"""Bytes of a JSON file that is one array: all of it is in memory."""
LOOKED: Final = 64 * 1024
"""Characters of a text file that tell how its columns are separated."""

Numbered = Iterator[tuple[int, Any]]
"""Rows with their numbers in the file: of the line in a text file or sheet, otherwise of the row, from 1."""


@dataclass(frozen=True)
class File:
    """A file of rows."""

    rows: Callable[[], Numbered]
    how: str = ""
    """What was found out about how it is written, such as "cp1252, separated by ;"; empty if nothing is unusual."""
    comma: bool = False
    """Whether its numbers have a decimal comma by the convention of spreadsheets: columns are separated by `;`."""


def ending_of(path: Path) -> str:
    """The ending in `FORMATS` that a file has; empty if it has none of them."""
    return max((ending for ending in FORMATS if path.name.lower().endswith(ending)), key=len, default="")


def read_file(path: Path, sheet: str = "") -> File:
    """How to read a file. `sheet`: of a workbook; by default the first one with rows. Raises `UserError`."""
    ending = ending_of(path)
    if not path.exists():
        raise UserError(f"there is no file {path}")
    if not ending:
        raise UserError(f"{path}: files of data end with {', '.join((*TEXTS, *SHEETS, *JSONS, *TABLES))}")
    if ending in SHEETS:
        return File(partial(_sheet, path, sheet))
    if ending in TABLES:
        return File(partial(_told, path, _table))
    if ending.startswith(JSONS):
        return File(partial(_told, path, _json))
    return _text(path)


def _told(path: Path, rows: Callable[[Path], Numbered]) -> Numbered:
    """The same rows; what a library says of a broken file becomes a line that names the file."""
    import pyarrow

    number = 0
    try:
        for number, row in rows(path):
            yield number, row
    except (OSError, EOFError, pyarrow.ArrowException, csv.Error, UnicodeError) as error:
        raise UserError(f"{path} cannot be read after row {number}: {printable(in_brief(error), 120)}") from error


def _opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked."""
    packed = PACKED.get(path.suffix.lower())
    raw = open_regular(path)
    if not packed:
        return raw
    import pyarrow

    return cast(BinaryIO, io.BufferedReader(pyarrow.CompressedInputStream(raw, packed)))


# Text


def _text(path: Path) -> File:
    import pyarrow

    try:
        encoding = _encoding(path)
        with io.TextIOWrapper(_opened(path), encoding=encoding, newline="") as text:
            head = text.read(LOOKED)
    except (OSError, EOFError, pyarrow.ArrowException, UnicodeError) as error:
        raise UserError(f"{path} cannot be read: {printable(in_brief(error), 120)}") from error
    said = head[4:5] if head.lower().startswith("sep=") else ""  # what Excel writes above
    separator = said or _separator(head, "\t" if ".tsv" in path.name.lower() else ",")
    unusual = [encoding] if encoding not in ("utf-8-sig", "utf-8") else []
    if separator != ("\t" if ".tsv" in path.name.lower() else ","):
        unusual.append(f"separated by {'tabs' if separator == chr(9) else separator}")
    rows = partial(_told, path, partial(_lines, encoding=encoding, separator=separator, skip=bool(said)))
    return File(rows, ", ".join(unusual), separator == ";")


def _encoding(path: Path) -> str:
    """UTF-8 and UTF-16 by their marks, UTF-8 if all of the file is, otherwise what Windows writes in the West."""
    with _opened(path) as file:
        head = file.read(4096)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "utf-16"
        nulls = Counter(place % 2 for place, byte in enumerate(head) if byte == 0)
        if sum(nulls.values()) > len(head) / 4:
            return "utf-16-le" if nulls[1] > nulls[0] else "utf-16-be"
        utf8 = codecs.getincrementaldecoder("utf-8")()
        try:
            while head:
                utf8.decode(head)
                head = file.read(1 << 20)
            utf8.decode(b"", final=True)
        except UnicodeDecodeError:
            return "cp1252"
    return "utf-8-sig"


def _separator(head: str, usual: str) -> str:
    """What separates the columns: with it most lines have as many fields as the first one, and the most."""
    best, separator = (0, 0), usual
    for one in dict.fromkeys((usual, ",", ";", "\t", "|")):
        try:
            records = list(islice(csv.reader(io.StringIO(head, newline=""), delimiter=one, skipinitialspace=True), 50))
        except csv.Error:
            continue
        filled = [len(record) for record in records if record]
        if not filled or filled[0] < 2:
            continue
        score = (sum(fields == filled[0] for fields in filled), filled[0])
        if score > best:
            best, separator = score, one
    return separator


def _lines(path: Path, encoding: str, separator: str, skip: bool) -> Numbered:
    csv.field_size_limit(MOST_BYTES)
    with io.TextIOWrapper(_opened(path), encoding=encoding, newline="") as text:
        reader = csv.reader(iter(lambda: _line(text), ""), delimiter=separator, skipinitialspace=True, strict=True)
        if skip:
            next(reader, None)
        header = [name.strip() for name in next(reader, [])]
        if len(header) > MOST_COLUMNS:
            raise csv.Error(f"it has {len(header):,} columns, and {MOST_COLUMNS:,} are the most")
        first: list[tuple[int, list[str]]] = []
        if _is_headless(header):
            first, header = [(reader.line_num, header)], ["question", "answer"]
        _check_names(path, header)
        while True:
            number = reader.line_num + 1
            fields = first.pop() if first else (number, next(reader, None))
            if fields[1] is None:
                return
            if len(fields[1]) == len(header):
                yield fields[0], dict(zip(header, fields[1], strict=True))
            elif any(field.strip() for field in fields[1]):
                yield fields[0], Unusable(f"has {len(fields[1])} fields, and the header has {len(header)}")


def _is_headless(header: list[str]) -> bool:
    """Whether the first line is a question and its answer, and no names of columns."""
    return len(header) == 2 and (header[0].endswith("?") or header[1].lstrip("-").replace(".", "", 1).isdigit())


def _check_names(path: Path, header: list[str]) -> None:
    """Raises `UserError` for a name that stands for two columns."""
    twice = [name for name, times in Counter(header).items() if times > 1 and name]
    if twice:
        raise UserError(
            f"{path} has {Counter(header)[twice[0]]} columns named {printable(repr(twice[0]), 60)}: rename all but one"
        )


def _line(text: io.TextIOWrapper) -> str:
    line = text.readline(MOST_BYTES)
    if len(line) >= MOST_BYTES:
        raise csv.Error(f"a line has more than {MOST_BYTES:,} characters")
    return line


# Sheets


def _sheet(path: Path, name: str) -> Numbered:
    from python_calamine import CalamineError, CalamineWorkbook

    try:
        open_regular(path).close()  # a pipe would be waited for
        book = CalamineWorkbook.from_path(path)
        names = book.sheet_names
        if name and name not in names:
            raise UserError(f"{path} has no sheet {name!r}; it has {printable(', '.join(names), 200)}")
        sheets = (book.get_sheet_by_name(one) for one in ([name] if name else names))
        rows = next((sheet.to_python(skip_empty_area=False) for sheet in sheets if sheet.height > 1), [])
    except (CalamineError, OSError) as error:
        raise UserError(f"{path} cannot be read: {printable(in_brief(error), 120)}") from error
    filled: Iterator[tuple[int, list[Any]]] = (
        (number, row) for number, row in enumerate(rows, 1) if any(cell not in ("", None) for cell in row)
    )
    begun = next(filled, None)
    if begun is None:
        return
    header = [str(cell).strip() for cell in begun[1]]
    if _is_headless([name for name in header if name]):
        header, filled = ["question", "answer"], chain([begun], filled)
    _check_names(path, header)
    for number, row in filled:
        yield number, {name: None if cell == "" else cell for name, cell in zip(header, row, strict=False) if name}


# JSON


def _json(path: Path) -> Numbered:
    """JSON lines, also in a file that is called .json."""
    with _opened(path) as file:
        head = file.read(LOOKED).lstrip(b"\xef\xbb\xbf \t\r\n")
    named = ending_of(path).startswith((".jsonl", ".ndjson"))
    lines = named or re.match(rb"\{.*\}\s*\n\s*\{", head) is not None
    return _json_lines(path) if lines else _json_array(path)


def _json_lines(path: Path) -> Numbered:
    with _opened(path) as file:
        for number in count(1):
            line = file.readline(MOST_BYTES + 1)
            rest = line
            while len(rest) > MOST_BYTES and not rest.endswith(b"\n"):
                rest = file.readline(MOST_BYTES + 1)
            if not line:
                return
            if not line.isspace():
                yield number, _decoded(line.removeprefix(b"\xef\xbb\xbf") if number == 1 else line)


def _decoded(line: bytes) -> Any:
    if len(line) > MOST_BYTES:
        return Unusable(f"has more than {MOST_BYTES:,} bytes")
    try:
        return msgspec.json.decode(line)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        return Unusable(f"is not JSON ({printable(str(error), 80)})")


def _json_array(path: Path) -> Numbered:
    """One array of objects, by itself or under the only key that has one; or a table of columns."""
    with _opened(path) as file:
        data = file.read(MOST_ARRAY + 1)
    if len(data) > MOST_ARRAY:
        raise UserError(
            f"{path} is one array of more than {MOST_ARRAY:,} bytes: write it as .jsonl, a row on each line"
        )
    try:
        found = msgspec.json.decode(data.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise UserError(f"{path} is not JSON: {printable(str(error), 120)}") from error
    if isinstance(found, dict):
        lists = [value for value in found.values() if isinstance(value, list)]
        objects = [value for value in lists if value and all(isinstance(row, dict) for row in value[:10])]
        if len(objects) == 1:
            found = objects[0]
        elif lists and len(lists) == len(found) and len({len(value) for value in lists}) == 1:
            found = [dict(zip(found, row, strict=True)) for row in zip(*lists, strict=True)]
        elif not lists:
            found = [found]
    if not isinstance(found, list):
        raise UserError(f"{path} is no array of rows: write [{{...}}, {{...}}], or a row on each line")
    yield from enumerate(found, 1)


# Tables of Arrow


def _table(path: Path) -> Numbered:
    import pyarrow.ipc
    import pyarrow.parquet

    open_regular(path).close()  # a pipe would be waited for
    if path.name.lower().endswith(".parquet"):
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            yield from enumerate(rows_of(file.iter_batches(BATCH)), 1)
        return
    with pyarrow.memory_map(str(path)) as raw:
        try:
            opened = pyarrow.ipc.open_file(raw)
            batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
        except pyarrow.ArrowInvalid:
            raw.seek(0)
            batches = iter(pyarrow.ipc.open_stream(raw))  # as `datasets` writes it
        yield from enumerate(rows_of(batches), 1)


def rows_of(tables: Iterator[Any]) -> Iterator[Any]:
    """The rows of tables of Arrow."""
    for table in tables:
        short = [
            (name, column)
            for name, column in zip(table.schema.names, table.columns, strict=True)
            if _is_short(column.type)
        ]
        try:
            rows = table.to_pylist()
        except (ValueError, OverflowError):  # a text that is no UTF-8, a time beyond the year 9999: of some rows
            rows = [_converted(table.slice(number, 1)) for number in range(table.num_rows)]
        for name, column in short:
            for row, value in zip(rows, column.to_numpy(zero_copy_only=False), strict=True):
                if isinstance(row, dict) and row[name] is not None:
                    row[name] = float(str(value)) if math.isfinite(value) else None
        yield from rows


def _is_short(kind: Any) -> bool:
    """Whether numbers have fewer bits than Python's: their shortest form is 0.1, and not 0.10000000149011612."""
    import pyarrow

    return bool(pyarrow.types.is_float32(kind) or pyarrow.types.is_float16(kind))


def _converted(row: Any) -> Any:
    """A table of one row as Python has it, or why it has not."""
    try:
        return row.to_pylist()[0]
    except (ValueError, OverflowError) as error:
        return Unusable(f"cannot be read: {printable(in_brief(error), 120)}")
