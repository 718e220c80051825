"""The rows of one file: CSV of any spreadsheet, Excel, OpenDocument, JSON, parquet, Arrow; packed or not.

    table = read_file(Path("quiz.csv"))[""]
    list(table.rows())              # [(2, {"question": "2 + 2 =", "answer": "4"}), ...]

What a file is follows from its first bytes, then from its ending. A row has the number by which a person finds it in
the file. A row that is not even readable comes as an `Unusable`. Own code around csv and json, since pandas and duckdb
give no row its line, guess types ("007" is 7) and refuse a whole file for one row; calamine reads sheets and pyarrow
tables. pyarrow, which starts threads, is imported where a file is read: what scores answers has to fork.
"""

import codecs
import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from itertools import chain, count, islice
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

from shoal.errors import UserError, in_brief
from shoal.tasks.data.forms import is_named
from shoal.tasks.data.rows import MOST_BYTES, MOST_RIGHT, Unusable
from shoal.tasks.data.sheets import sheets_of
from shoal.untrusted import open_regular, printable

TEXTS: Final = (".csv", ".tsv", ".txt")
SHEETS: Final = (".xlsx", ".xlsm", ".xlsb", ".xls", ".ods")
JSONS: Final = (".jsonl", ".ndjson", ".json")
TABLES: Final = (".parquet", ".arrow", ".feather")
PACKED: Final = {b"\x1f\x8b": "gzip", b"\x28\xb5\x2f\xfd": "zstd", b"BZh": "bz2"}
"""How files begin that are packed."""
FORMATS: Final = tuple(
    ending + packed
    for ending in (*TEXTS, *SHEETS, *JSONS, *TABLES)
    for packed in ("", ".gz", ".zst", ".bz2")
    if not packed or ending in (*TEXTS, *JSONS)
)
"""Endings of the files that are read."""
NO_DATA: Final = dict.fromkeys((b"<!doctype", b"<html"), "a web page: download the file itself") | {
    b"version https://git-lfs": "a pointer of Git LFS: say git lfs pull"
}
"""What stands in place of a file that was not downloaded, by how it begins."""
MOST_COLUMNS: Final = 10_000
"""Of a table in CSV: each row takes a place for each of them."""
BATCH: Final = 256
"""Rows of a table that are read at once."""
MOST_ARRAY: Final = 2**30
"""Characters of a JSON file that is one array: all of them are in memory."""
MOST_PACKED: Final = 200
"""Times of its size that a packed file may grow, beyond `FREE`: text grows three to fifty times."""
FREE: Final = 2**28
LOOKED: Final = 64 * 1024
"""Characters of a text file that tell how its columns are separated."""
TITLES: Final = 10
"""Rows that may stand above the names of columns."""

Numbered = Iterator[tuple[int, Any]]
"""Rows with their numbers in the file: of the line in a text file or sheet, otherwise of the row, from 1."""


@dataclass(frozen=True)
class File:
    """A file of rows, or one of the splits in it."""

    rows: Callable[[], Numbered]
    how: str = ""
    """What was found out about how it is written, such as "cp1252, separated by ;"; empty if nothing is unusual."""
    separator: str = ""
    """What separates its columns, in CSV: behind `;` and tabs spreadsheets may write decimal commas."""
    name: str = ""
    """What messages call it."""
    places: Callable[[int], str] | None = None
    """Names a row of several files that are one."""

    def place(self, number: int) -> str:
        """What messages call the row with this number."""
        return self.places(number) if self.places else f"row {number} of {self.name}"


def ending_of(path: Path) -> str:
    """The ending in `FORMATS` that a file has; empty if it has none of them."""
    return max((ending for ending in FORMATS if path.name.lower().endswith(ending)), key=len, default="")


def read_file(path: Path, sheet: str = "") -> dict[str, File]:
    """How to read a file: its splits by their names, or "" and all of it. `sheet`: of a workbook; by default the first
    one with questions. Raises `UserError`."""
    import pyarrow

    ending = ending_of(path)
    if not path.exists():
        raise UserError(f"there is no file {path}")
    if not ending:
        first = "unzip it first; " if path.suffix.lower() in (".zip", ".7z", ".rar", ".tar", ".tgz") else ""
        raise UserError(f"{path}: {first}files of data end with {', '.join((*TEXTS, *SHEETS, *JSONS, *TABLES))}")
    try:
        with _opened(path) as file:
            head = file.read(LOOKED)
        for mark, what in NO_DATA.items():
            if head.lstrip()[:40].lower().startswith(mark):
                raise UserError(f"{path} is {what}")
        if head.startswith((b"PK\3\4", b"\xd0\xcf\x11\xe0")):
            return _workbook(path, sheet)
        if ending in SHEETS and ending != ".xls":  # which may be a table of text
            raise OSError("it is no workbook")
        if head.startswith((b"PAR1", b"ARROW1")) or ending in TABLES:
            return {"": File(partial(_told, path, partial(_table, is_parquet=head.startswith(b"PAR1"))))}
        encoding = _encoding(path)
        text = head.decode(encoding, "surrogateescape" if encoding.startswith("utf-8") else "ignore").lstrip("\ufeff")
        if ending.startswith(JSONS) or re.match(r'\s*\[?\s*\{\s*"', text):
            return _json(path, encoding, text)
        return {"": _text(path, encoding, text, "\t" if ".tsv" in path.name.lower() else ",")}
    except (OSError, EOFError, pyarrow.ArrowException, UnicodeError) as error:
        raise UserError(f"{path} cannot be read: {printable(in_brief(error), 120)}") from error


def _told(path: Path, rows: Callable[[Path], Numbered]) -> Numbered:
    """The same rows; what a library says of a broken file becomes a line that names the file."""
    import pyarrow

    number = 0
    try:
        for number, row in rows(path):
            yield number, row
    except (OSError, EOFError, pyarrow.ArrowException, csv.Error, UnicodeError) as error:
        raise UserError(f"{path} cannot be read after row {number}: {printable(in_brief(error), 120)}") from error


class _Unpacked(io.RawIOBase):
    """The content of a packed file, which may not grow without end."""

    def __init__(self, raw: BinaryIO, how: str) -> None:
        import pyarrow

        self._most = FREE + MOST_PACKED * raw.seek(0, io.SEEK_END)
        raw.seek(0)
        self._stream = pyarrow.CompressedInputStream(raw, how)

    def readable(self) -> bool:
        return True

    def readinto(self, room: Any) -> int:
        data = self._stream.read(len(room))
        self._most -= len(data)
        if self._most < 0:
            raise OSError("it grows more than 200 times when it is unpacked")
        room[: len(data)] = data
        return len(data)


def _opened(path: Path) -> BinaryIO:
    """A file's bytes, unpacked."""
    raw = open_regular(path)
    head = raw.read(4)
    raw.seek(0)
    packed = next((how for mark, how in PACKED.items() if head.startswith(mark)), "")
    return cast(BinaryIO, io.BufferedReader(_Unpacked(raw, packed), 1 << 16)) if packed else raw


def _encoding(path: Path) -> str:
    """UTF-8 and UTF-16 by their marks, UTF-8 if most of the file is, otherwise what Windows writes in the West, or an
    old Mac. Raises `UserError` for a text of another script."""
    with _opened(path) as file:
        head = file.read(4096)
        if head.startswith((b"\xff\xfe", b"\xfe\xff")):
            return "utf-16"
        nulls = Counter(place % 2 for place, byte in enumerate(head) if byte == 0)
        if sum(nulls.values()) > len(head) / 4:
            return "utf-16-le" if nulls[1] > nulls[0] else "utf-16-be"
        decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        old_mac = b"\r" in head and b"\n" not in head
        odd = good = plain = 0
        while head:
            if not head.isascii():
                text = decoder.decode(head)
                bytes_odd = len(re.findall("[\udc80-\udcff]", text))
                odd, good = odd + bytes_odd, good + len(re.findall("[^\0-\x7f]", text)) - bytes_odd
                plain += len(re.findall("[A-Za-z]", text))
            head = file.read(1 << 20)
    if odd <= good:
        return "utf-8-sig"
    if 3 * odd > plain:
        raise UserError(f"{path} is neither UTF-8 nor of Western Europe: save it as CSV UTF-8")
    return "mac_roman" if old_mac else "cp1252"


# Text


def _text(path: Path, encoding: str, head: str, usual: str) -> File:
    said = head[4:5] if head.lower().startswith("sep=") else ""  # what Excel writes above
    separator, spaces = _separator(head, usual)
    separator = said or separator
    unusual = [] if encoding.startswith("utf-8") else [encoding]
    if separator != usual:
        unusual.append(f"separated by {'tabs' if separator == chr(9) else separator}")
    quote = "'" if re.search(rf"\n'[^\n]*'{re.escape(separator)}'[^\n]*'\r?\n", head) else '"'
    read = partial(_records, encoding=encoding, separator=separator, spaces=spaces, skip=bool(said), quote=quote)
    rows = partial(_told, path, partial(named_rows, read=partial(read, path)))
    return File(rows, ", ".join(unusual), separator)


def _separator(head: str, usual: str) -> tuple[str, bool]:
    """What separates the columns, and whether spaces follow it: then most lines have the same number of fields."""
    best, chosen = (0, 0), (usual, False)
    for one in dict.fromkeys((usual, ",", ";", "\t", "|")):
        records = _head(head, one, False)
        begins = {record[1][:1] for record in records[1:] if len(record) > 1}
        spaces = " " in begins <= {" ", ""}
        if spaces:
            records = _head(head, one, True)
        fields, lines = Counter(map(len, records)).most_common(1)[0] if records else (0, 0)
        if fields > 1 and (lines, fields) > best:
            best, chosen = (lines, fields), (one, spaces)
    return chosen


def _head(head: str, separator: str, spaces: bool) -> list[list[str]]:
    """The first records, if the separator is this one."""
    reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator, skipinitialspace=spaces)
    try:
        return [record for record in islice(reader, 50) if record]
    except csv.Error:
        return []


def _records(path: Path, encoding: str, separator: str, spaces: bool, skip: bool, quote: str) -> Numbered:
    """The fields of each row."""
    csv.field_size_limit(MOST_BYTES)
    with io.TextIOWrapper(_opened(path), encoding=encoding, errors="surrogateescape", newline="") as text:
        lines = iter(lambda: _line(text), "")
        reader = csv.reader(lines, delimiter=separator, quotechar=quote, skipinitialspace=spaces, strict=True)
        if skip:
            next(reader, None)
        while True:
            number = reader.line_num + 1
            try:
                fields = next(reader, None)
            except csv.Error as error:
                if reader.line_num > number:
                    raise UserError(
                        f"{path}: row {number} opens a quotation mark that nothing closes: close it, or double it"
                    ) from error
                yield number, Unusable(f"cannot be read ({error}): double the quotation marks within a text")
                continue
            if fields is None:
                return
            fields = [re.sub(r'^="([^"]*)"$', r"\1", one) for one in fields]  # as Excel keeps digits as text
            yield number, [one.strip() for one in fields] if separator == "|" else fields


def named_rows(path: Path, read: Callable[[], Numbered]) -> Numbered:
    """Rows of cells by the names in the first one, or in the first with usual names, above which titles stand."""
    filled = ((number, row) for number, row in read() if not isinstance(row, list) or any(map(_is_filled, row)))
    begun = list(islice(filled, TITLES))
    counts = [sum(map(_is_filled, row)) if isinstance(row, list) else 0 for _, row in begun]
    titled = (
        place
        for place, (_, row) in enumerate(begun)
        if isinstance(row, list) and sum(map(is_named, row)) > 1 and counts[place] > max(counts[:place], default=0)
    )
    place = next(titled, 0)
    cells = begun[place][1] if begun else []
    if isinstance(cells, Unusable):
        raise UserError(f"{path}: row {begun[place][0]}, which has the names of the columns, {cells}")
    header = [str(cell).strip() for cell in cells]
    if len(header) > MOST_COLUMNS:
        raise UserError(f"{path} has {len(header):,} columns, and {MOST_COLUMNS:,} are the most")
    first = [name for name in header if name]
    if len(first) == 2 and (first[0].endswith("?") or first[1].lstrip("-").replace(".", "", 1).isdigit()):
        # a question and its answer, and no names of columns
        names = iter(("question", "answer"))
        header, place = [next(names) if name else "" for name in header], place - 1
    _check_names(path, header)
    for number, row in chain(begun[place + 1 :], filled):
        if isinstance(row, Unusable):
            yield number, row
        elif not re.search(r"[^-: ]", "".join(str(cell or "") for cell in row[:2])) or (place >= 0 and row == cells):
            continue  # the line below the names of a table in Markdown; the names again, of a file behind another
        elif any(map(_is_filled, row[len(header) :])):
            yield number, Unusable(f"has {len(row)} fields, and the header has {len(header)}: put the text in quotes")
        else:
            row += [None] * (len(header) - len(row))
            yield number, {name: cell for name, cell in zip(header, row, strict=False) if name}


def _is_filled(cell: Any) -> bool:
    return cell is not None and str(cell).strip() != ""


def _check_names(path: Path, header: Iterable[str]) -> None:
    """Raises `UserError` for a name that stands for two columns."""
    name, times = Counter(name for name in header if name).most_common(1)[0] if any(header) else ("", 0)
    if times > 1:
        raise UserError(f"{path} has {times} columns named {printable(repr(name), 60)}: rename all but one")


def _line(text: io.TextIOWrapper) -> str:
    line = text.readline(MOST_BYTES)
    if len(line) >= MOST_BYTES:
        raise OSError(f"a line has more than {MOST_BYTES:,} characters")
    return line.replace("\0", "")


def _workbook(path: Path, wanted: str) -> dict[str, File]:
    """The sheets train and test, if there are such; otherwise the wanted one, the first with usual names, or any."""
    found = {name: cells for name, cells in sheets_of(path, wanted).items() if len(cells) > 1}
    read = {name: partial(named_rows, path, partial(enumerate, cells, 1)) for name, cells in found.items()}
    if not wanted and "train" in map(str.casefold, found):
        return {name.casefold(): File(rows) for name, rows in read.items()}
    usual = (name for name, cells in found.items() if any(sum(map(is_named, row)) > 1 for row in cells[:TITLES]))
    name = next(usual, next(iter(found), ""))
    how = f"sheet {name!r} of {len(found)}" if len(found) > 1 else ""
    return {"": File(read.get(name, partial(iter, ())), how)}


# JSON


def _json(path: Path, encoding: str, head: str) -> dict[str, File]:
    """JSON lines, or one array, or objects one after the other, or an object that has the rows."""
    how = "" if encoding.startswith("utf-8") else encoding
    first = head.lstrip().splitlines()[:TITLES]
    whole = "\n" not in head.strip() and not re.search(r"\.json(\.(gz|zst|bz2))?$", path.name.lower())
    if not head.lstrip().startswith("[") and (whole or any(isinstance(_decoded(line), dict) for line in first[:-1])):
        return {"": File(partial(_told, path, partial(_json_lines, encoding=encoding)), how)}
    with io.TextIOWrapper(_opened(path), encoding=encoding, errors="surrogateescape") as file:
        text = file.read(MOST_ARRAY).strip("\ufeff \t\r\n") if path.stat().st_size < MOST_ARRAY else ""
        longer = file.read(1) != ""
    if longer:
        raise UserError(f"{path} has more than {MOST_ARRAY:,} characters: write it as .jsonl, a row on each line")
    if text.startswith("[") and not text.endswith("]"):
        raise UserError(f"{path} is not JSON: its end is missing")
    if not text.startswith("["):
        begun = [row for _, row in islice(_values(path, text), 2)]
        if len(begun) == 1:
            return {name: File(partial(enumerate, rows, 1), how) for name, rows in _document(path, begun[0]).items()}
    return {"": File(partial(_values, path, text), how)}


def _json_lines(path: Path, encoding: str) -> Numbered:
    with io.TextIOWrapper(_opened(path), encoding=encoding, errors="surrogateescape", newline="\n") as file:
        for number in count(1):
            line = file.readline(MOST_BYTES + 1)
            rest = line
            while len(rest) > MOST_BYTES and not rest.endswith("\n"):
                rest = file.readline(MOST_BYTES + 1)
            if not line:
                return
            if not line.isspace():
                yield number, _decoded(line)


def _decoded(line: str) -> Any:
    if len(line) > MOST_BYTES:
        return Unusable(f"has more than {MOST_BYTES:,} bytes")
    try:
        return _DECODER.decode(line.strip().removesuffix(","))
    except (ValueError, RecursionError) as error:
        return Unusable(f"is not JSON ({printable(str(error), 80)})")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object. Raises `ValueError` for a name that stands for two values."""
    found = dict(pairs)
    if len(found) < len(pairs):
        [(name, _)] = Counter(name for name, _ in pairs).most_common(1)
        raise ValueError(f"it has {name!r} twice: leave out all but one")
    return found


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=lambda n: float(n) if len(n.lstrip("-0.")) < 19 else Decimal(n)
)
_BETWEEN: Final = re.compile(r"[\s,\[\]]*")


def _values(path: Path, text: str) -> Numbered:
    """The values of an array, or of a text that has one after the other."""
    place = 0
    for number in count(1):
        between = _BETWEEN.match(text, place)
        place = between.end() if between else place
        if place == len(text):
            return
        try:
            value, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{path} is not JSON: row {number}: {printable(str(error), 120)}") from error
        yield number, value


def _document(path: Path, found: Any) -> dict[str, list[Any]]:
    """The rows in an object, by split: under the only key that has some, under those of splits, or a table of
    columns, or an object of rows, or of right answers by their questions, or itself."""
    columns, data = (found.get(name) for name in ("columns", "data")) if isinstance(found, dict) else (None, None)
    if isinstance(columns, list) and isinstance(data, list) and all(isinstance(row, list) for row in data):
        return {"": [dict(zip(map(str, columns), row, strict=False)) for row in data]}  # pandas' "split"
    tables = (
        {name: rows for name, value in found.items() if (rows := _rows_in(value))} if isinstance(found, dict) else {}
    )
    if "train" in tables:
        return tables
    inner = next(iter(found.values())) if isinstance(found, dict) and len(found) == 1 else None
    if isinstance(inner, dict) and "train" in inner:
        return _document(path, inner)
    if len(tables) == 1:
        return {"": next(iter(tables.values()))}
    if rows := _rows_in(found):
        return {"": rows}
    if isinstance(found, dict) and any(isinstance(value, str | int | float) for value in found.values()):
        by_question = len(found) > 1 and not any(map(is_named, found))
        return {"": [{"question": q, "answer": a} for q, a in found.items()] if by_question else [found]}
    raise UserError(f"{path} is no array of rows: write [{{...}}, {{...}}], or a row on each line")


def _rows_in(value: Any) -> list[Any]:
    """The rows of an array of objects, of an object of columns (pandas' too) or of rows; none of anything else."""
    if isinstance(value, list):
        return value if all(isinstance(row, dict) for row in value[:10]) else []
    inner = list(value.values()) if isinstance(value, dict) else []
    if inner and all(isinstance(column, list) for column in inner) and len({len(column) for column in inner}) == 1:
        return [dict(zip(value, row, strict=True)) for row in zip(*inner, strict=True)]
    if not inner or not all(isinstance(one, dict) for one in inner):
        return []
    if all(key.isdigit() for key in inner[0]):
        return [{name: column.get(key) for name, column in value.items()} for key in inner[0]]
    return inner


# Tables of Arrow


def _table(path: Path, is_parquet: bool) -> Numbered:
    import pyarrow.ipc
    import pyarrow.parquet

    if is_parquet:
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            _check_names(path, file.schema_arrow.names)
            yield from enumerate(rows_of(file.iter_batches(BATCH)), 1)
        return
    with pyarrow.memory_map(str(path)) as raw:
        try:
            opened = pyarrow.ipc.open_file(raw)
            batches = (opened.get_batch(number) for number in range(opened.num_record_batches))
        except pyarrow.ArrowInvalid:
            raw.seek(0)
            opened = batches = pyarrow.ipc.open_stream(raw)  # as `datasets` writes it
        _check_names(path, opened.schema.names)
        yield from enumerate(rows_of(batches), 1)


def rows_of(tables: Iterable[Any]) -> Iterator[Any]:
    """The rows of tables of Arrow."""
    for table in tables:
        short = {field.name: field.type for field in table.schema if re.search(r"\b(half)?float\b", str(field.type))}
        try:
            rows = table.to_pylist()
        except (ValueError, OverflowError):  # a text that is no UTF-8, a time beyond the year 9999: of some rows
            rows = [_converted(table.slice(number, 1)) for number in range(table.num_rows)]
        for row in rows if short else ():
            if isinstance(row, dict):
                row |= {name: _shortened(row[name], kind) for name, kind in short.items()}
        yield from rows


def _shortened(value: Any, kind: Any) -> Any:
    """Numbers of 32 and of 16 bits in their shortest form: 0.1, and not 0.10000000149011612."""
    import pyarrow

    if isinstance(value, float):
        return float(str(kind.to_pandas_dtype()(value)))
    if isinstance(value, dict) and pyarrow.types.is_struct(kind):
        return {field.name: _shortened(value[field.name], field.type) for field in kind}
    if isinstance(value, list) and len(value) <= MOST_RIGHT and not pyarrow.types.is_map(kind):
        return [_shortened(one, kind.value_type) for one in value]
    return value


def _converted(row: Any) -> Any:
    """A table of one row as Python has it, or why it has not."""
    try:
        return row.to_pylist()[0]
    except (ValueError, OverflowError) as error:
        return Unusable(f"cannot be read: {printable(in_brief(error), 120)}")
