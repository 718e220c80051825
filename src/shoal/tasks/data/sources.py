"""Where the rows of a data set come from: one file, a folder, or a name on the Hub.

    train, held_out = sides_of(data_spec({"path": "questions.jsonl"}))
    list(train.rows())              # [(1, {"prompt": "2 + 2 =", "answer": "4"}), ...]

All are read piece by piece. A row that is not even readable comes as an `Unusable`.
"""

import csv
import gzip
import io
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any, BinaryIO, Final, cast

import msgspec

from shoal.errors import UserError, in_brief
from shoal.tasks.data.rows import MOST_BYTES, Unusable
from shoal.tasks.data.spec import FORMATS, HASH, NONE, DataSpec
from shoal.untrusted import open_regular, printable

MOST_COLUMNS: Final = 10_000
"""Of a table in CSV: each row takes a place for each of them."""
BATCH: Final = 256
"""Rows of a table that are read at once."""
OWN_SPLITS: Final = ("test", "validation")
"""Splits that are held out where nothing is said, the first that there is."""
MOST_FILES: Final = 100_000
"""Of a folder."""

Numbered = Iterator[tuple[int, Any]]
"""Rows with their numbers, from 1: of the line in JSON lines, otherwise of the row."""


@dataclass(frozen=True)
class Side:
    """The rows that are trained on, or those that are held out."""

    name: str
    """What messages call it."""
    rows: Callable[[], Numbered]


def sides_of(spec: DataSpec) -> tuple[Side | None, Side | None]:
    """What to train on and what to hold out; None for the latter if a hash decides. Raises `UserError`; it may read
    from the Hub."""
    splits = _splits(spec)
    train = None if spec.split == NONE else _chosen(splits, spec)
    if spec.held_out == HASH:
        held_out = None
    elif spec.held_out == "auto":
        held_out = next((splits[name] for name in OWN_SPLITS if name in splits and splits[name] != train), None)
    elif spec.held_out in splits:
        held_out = splits[spec.held_out]
    elif is_place(spec.held_out):
        held_out, _ = sides_of(msgspec.structs.replace(spec, path=spec.held_out, split="", held_out=HASH))
    else:
        has = ", ".join(splits) if len(splits) > 1 or "" not in splits else "no splits"
        raise UserError(f"{spec.path} has no split {spec.held_out!r} to hold out; it has {has}")
    if train is None and held_out is None:
        raise UserError(f"{spec.path}: with split = {NONE!r} say what is held out")
    same = is_place(spec.held_out) and Path(spec.held_out).absolute() == Path(spec.path).absolute()
    if train is not None and (train == held_out or same):
        raise UserError(f"{spec.path}: the same rows are trained on and held out; leave out held_out, or say 'hash'")
    return train, held_out


def is_place(text: str) -> bool:
    """Whether `text` names a file, a folder or a data set on the Hub, and not a split."""
    return "/" in text or text.lower().endswith(FORMATS)


def state_of(path: str) -> list[tuple[str, int, int]]:
    """The name, the size and the time of change of a file, or of all files in a folder; empty for a name on the Hub."""
    place = Path(path)
    if place.is_dir():
        files = [file for file, _ in zip(sorted(place.rglob("*")), range(MOST_FILES), strict=False) if file.is_file()]
    else:
        files = [place] if place.exists() else []
    return [(str(file.absolute()), stat.st_size, stat.st_mtime_ns) for file in files if (stat := file.stat())]


def _chosen(splits: Mapping[str, Side], spec: DataSpec) -> Side:
    """The split to train on."""
    name = spec.split or (next(iter(splits)) if len(splits) == 1 else "train")
    if name in splits:
        return splits[name]
    if "" in splits:
        raise UserError(f"{spec.path} is one file, without splits: leave out split = {spec.split!r}")
    raise UserError(f"{spec.path} has no split {name!r}; it has {', '.join(splits)}: say split = NAME")


def _splits(spec: DataSpec) -> dict[str, Side]:
    """The parts of a data set by the names of their splits; a file is one part without a name."""
    path = Path(spec.path)
    suffix = next((ending for ending in FORMATS if path.name.lower().endswith(ending)), "")
    if path.is_dir() or not (path.exists() or suffix):
        return _of_datasets(spec)
    if not path.exists():
        raise UserError(f"there is no file {spec.path}")
    if not suffix:
        raise UserError(f"{spec.path}: files of data end with {', '.join(FORMATS)}")
    rows: Callable[[], Numbered] = partial(_json_lines, path)
    if suffix == ".parquet":
        rows = partial(_parquet, path)
    elif suffix in (".csv", ".tsv"):
        rows = partial(_csv, path, "," if suffix == ".csv" else "\t")
    return {"": Side(path.name, rows)}


def _json_lines(path: Path) -> Numbered:
    with open_regular(path) as raw:
        file = cast(BinaryIO, gzip.GzipFile(fileobj=raw)) if path.name.lower().endswith(".gz") else raw
        for number in count(1):
            try:
                line = file.readline(MOST_BYTES + 1)
                rest = line
                while len(rest) > MOST_BYTES and not rest.endswith(b"\n"):
                    rest = file.readline(MOST_BYTES + 1)
            except (gzip.BadGzipFile, EOFError, zlib.error) as error:
                raise UserError(f"{path} cannot be unpacked: {printable(str(error), 120)}") from error
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


def _csv(path: Path, delimiter: str) -> Numbered:
    number = 0
    csv.field_size_limit(MOST_BYTES)  # a longer text than its usual limit is a row that is left out, not an error
    try:
        with open_regular(path) as raw, io.TextIOWrapper(raw, encoding="utf-8-sig", newline="") as text:
            lines = csv.reader(iter(lambda: _line(text), ""), delimiter=delimiter, strict=True)
            header = next(lines, [])
            if len(header) > MOST_COLUMNS:
                raise csv.Error(f"it has {len(header):,} columns, and {MOST_COLUMNS:,} are the most")
            for number, fields in enumerate(lines, 1):
                if len(fields) == len(header):
                    yield number, dict(zip(header, fields, strict=True))
                elif fields:
                    yield number, Unusable(f"has {len(fields)} fields, and the header has {len(header)}")
    except (csv.Error, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read after row {number}: {printable(str(error), 120)}") from error


def _line(text: io.TextIOWrapper) -> str:
    line = text.readline(MOST_BYTES)
    if len(line) >= MOST_BYTES:
        raise csv.Error(f"a line has more than {MOST_BYTES:,} characters")
    return line


def _parquet(path: Path) -> Numbered:
    import pyarrow
    import pyarrow.parquet

    number = 0
    try:
        open_regular(path).close()  # a pipe would be waited for
        with pyarrow.parquet.ParquetFile(path, memory_map=True) as file:
            for number, row in enumerate(_rows(file.iter_batches(BATCH)), 1):
                yield number, row
    except (pyarrow.ArrowException, OSError) as error:
        raise UserError(f"{path} cannot be read after row {number}: {printable(str(error), 120)}") from error


def _of_datasets(spec: DataSpec) -> dict[str, Side]:
    """The splits of a folder or of a data set on the Hub, as Hugging Face's library reads them. It runs no code of
    theirs."""
    try:
        import datasets
    except ImportError as error:
        raise UserError(
            f"{spec.path} is no file that ends with {', '.join(FORMATS)}; folders and names on the Hub need "
            "pip install 'shoal[data]'"
        ) from error
    path = Path(spec.path)
    try:
        if any((path / name).is_file() for name in ("dataset_dict.json", "state.json")):
            found = datasets.load_from_disk(spec.path)
        else:
            revision = {} if path.is_dir() else {"revision": spec.revision or None}
            found = datasets.load_dataset(spec.path, spec.subset or None, **revision)
    except Exception as error:  # of the Hub, of the network, of the parsers of its files
        what = "cannot be read" if path.is_dir() else "is no file here, and cannot be read from the Hub"
        raise UserError(f"{spec.path} {what}: {printable(' '.join(str(error).split()), 300)}") from error
    splits = found if isinstance(found, datasets.DatasetDict) else {"train": found}
    return {
        str(name): Side(f"{spec.path} ({name})", partial(_of_split, split.with_format("arrow")))
        for name, split in splits.items()
    }


def _of_split(split: Any) -> Numbered:
    return enumerate(_rows(split.iter(BATCH)), 1)


def _rows(tables: Iterator[Any]) -> Iterator[Any]:
    """The rows of tables of Arrow."""
    for table in tables:
        try:
            yield from table.to_pylist()
        except (ValueError, OverflowError):  # a text that is no UTF-8, a time beyond the year 9999: of some rows
            for number in range(table.num_rows):
                yield _converted(table.slice(number, 1))


def _converted(row: Any) -> Any:
    """A table of one row as Python has it, or why it has not."""
    try:
        return row.to_pylist()[0]
    except (ValueError, OverflowError) as error:
        return Unusable(f"cannot be read: {printable(in_brief(error), 120)}")
