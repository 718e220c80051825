"""The tables of a run: folders of parquet files, which `pandas.read_parquet(folder)` reads as one.

    read_table(folder, ROLLOUTS, ["round", "reward"])                   # a run of one's own, as a data frame
    records(folder, LEARNED, ["node", "maker"])                         # a stranger's, within bounds of memory

Nothing here uses what starts pyarrow's threads (`read_table`, `iter_batches`, `group_by`): they may abort or hang at
the end of the program (apache/arrow#50482).
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from shoal.errors import UserError
from shoal.rollout import Completion, Question
from shoal.runs.disk import disk_errors, write_atomically
from shoal.untrusted import json_safe, open_regular, printable

if TYPE_CHECKING:
    import pandas

ROLLOUTS, LEARNED, TRANSCRIPTS = "rollouts.parquet", "learned.parquet", "transcripts.parquet"
PART_BYTES = 16 << 20
"""The size in memory at which a file is closed. Each checkpoint writes the open file again."""
FOOTER, GROUPS, ROWS = 1 << 20, 1000, 10_000_000
"""Bounds of a part of a stranger's run: bytes of its footer, row groups, rows."""
READ, MOST, BATCH = 64 << 20, 1_000_000, 1 << 16
"""Of such a part outside the window: bytes of columns and rows at most, and rows at a time. Memory is a multiple."""


def _columns(text: str) -> pa.Schema:
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in (word.split(":") for word in text.split())])


SCHEMA = _columns(
    "round:int64 node:string task:string version:string config:string seed:int64 index:int64 prompt:string "
    "completion:string finish_reason:string reward:double live:bool answer:string conversation:string "
    "read:string"
)
"""The columns of the rollouts: a row for each completion, named as TRL does. `answer`: a right one, null
where the task names none. `conversation`: where an environment answered back, a list of [turn, observation] in JSON;
else null. `read`: what was taken for the answer (`Tasks.reading`), or null."""
LEARNED_SCHEMA = _columns(
    "round:int64 node:string maker:string made:int64 slot:int64 task:string config:string seed:int64 index:int64 "
    "live:bool mean_reward:double peer:bool gradient_share:double shortened:double"
)
"""The columns of what was learned from: a row for each rollout. `peer`: whether another node made it. `made`: the
maker's round. `mean_reward`: by the learner's own verifier. For the shares see `metrics.learned_rows`."""
TRANSCRIPT_SCHEMA = _columns(
    "round:int64 node:string task:string prompt:string completion:string finish_reason:string reward:double "
    "answer:string identity:string conversation:string"
)
"""The columns of the transcripts: a row for each kept question in each evaluation (`runs.transcripts`). `identity`: the
version of its task, its seed and its index. `conversation`: as in the rollouts."""
LATER = frozenset({"answer", "conversation", "identity", "read"})
"""Columns that tables of older runs do not have, and that rows may leave out."""
OLD_NAMES = {"prompt": "question", "peer": "foreign"}
"""What earlier runs called these columns. They are read under the names of today."""
TABLES = {ROLLOUTS: SCHEMA, LEARNED: LEARNED_SCHEMA, TRANSCRIPTS: TRANSCRIPT_SCHEMA}


class Table:
    """One table that a run writes."""

    def __init__(self, folder: Path, schema: pa.Schema) -> None:
        self.folder = folder
        self.schema = schema
        self._open: list[pa.Table] = []  # the rows of the last file
        self._start = 0  # their first round

    def add(self, round: int, rows: Sequence[Mapping[str, Any]]) -> None:
        """Takes rows of `round`, which `write` writes."""
        if not rows:
            return
        if not self._open:
            self._start = round
        full: list[dict[str, Any]] = [{**dict.fromkeys(LATER), **row} for row in rows]
        columns = {name: [json_safe(row[name]) for row in full] for name in self.schema.names if name != "round"}
        self._open.append(pa.table({"round": [round] * len(rows)} | columns, schema=self.schema))

    def write(self) -> None:
        """Writes the open file whole, and closes it if it is large."""
        if not self._open:
            return
        self.folder.mkdir(exist_ok=True)
        table = pa.concat_tables(self._open)
        _write(self.folder / f"from-round-{self._start:06d}.parquet", table)
        self._open = [table]
        if table.nbytes > PART_BYTES:
            self._open = []

    def rewind(self, round: int) -> list[str]:
        """Drops the rows of later rounds. Files that are damaged are renamed; returns a line for each."""
        self._open = []
        faults = []
        for part in sorted(self.folder.glob("*.parquet")):
            with disk_errors(part):
                try:
                    table = _read(part)
                    rounds = table["round"].to_numpy()
                except (pa.ArrowException, KeyError):
                    faults.append(f"{part} is damaged: its rows are lost, and it is {part.name}.damaged now")
                    part.rename(part.with_name(f"{part.name}.damaged"))
                    continue
                if rounds.min() > round:
                    part.unlink()
                elif rounds.max() > round:
                    _write(part, table.filter(pa.array(rounds <= round)))
        return faults


def _write(path: Path, table: pa.Table) -> None:
    buffer = pa.BufferOutputStream()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue().to_pybytes())


def _read(part: Path, columns: Sequence[str] | None = None) -> pa.Table:
    with pq.ParquetFile(part) as file:
        wanted = _stored(columns, file.schema.names) if columns else None
        return _renamed(file.read(wanted, use_threads=False))


def _stored(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """What `columns` are called in a file that has these `names`."""
    return [name if name in names else OLD_NAMES.get(name, name) for name in columns]


def _renamed(table: pa.Table) -> pa.Table:
    """`table` with the names of today."""
    new = {old: name for name, old in OLD_NAMES.items() if name not in table.column_names}
    return table.rename_columns([new.get(name, name) for name in table.column_names])


def read_table(run: Path, table: str, columns: Sequence[str] = ()) -> pandas.DataFrame:
    """A table of a run of one's own, whole, or these columns of it; empty where there is none."""
    schema = TABLES[table]
    columns = columns or schema.names
    parts = [schema.empty_table(), *(_read(path, columns) for path in sorted((run / table).glob("[!.]*.parquet")))]
    return pa.concat_tables(parts, promote_options="permissive").select(columns).to_pandas(use_threads=False)


def records(run: Path, table: str, columns: Sequence[str]) -> Iterator[dict[str, Any]]:
    """These columns of all rows, one row at a time; what older runs lack is None. Texts are dictionaries while they are
    read: one that stands in a million rows takes memory once. Raises `UserError` for files that are no tables, or
    beyond the bounds."""
    for part in sorted((run / table).glob("*.parquet")):
        try:
            with _checked(part, table, columns) as rows:
                wanted = _stored(columns, rows.schema.names)
                for number in range(rows.num_row_groups):
                    for batch in _renamed(rows.read_row_group(number, wanted, use_threads=False)).to_batches(BATCH):
                        there = batch.schema.names
                        cells = [_cells(batch[name]) if name in there else [None] * len(batch) for name in columns]
                        yield from (dict(zip(columns, row, strict=True)) for row in zip(*cells, strict=True))
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
            raise UserError(f"cannot read {part}: {printable(str(error), 200)}") from error


def _cells(column: pa.Array) -> list[Any]:
    """The values of a column; equal texts are one object, and bytes that are no text become ?."""
    if not isinstance(column, pa.DictionaryArray):
        found: list[Any] = column.to_pylist()
        return found
    texts = [text and text.decode(errors="replace") for text in column.dictionary.cast(pa.binary()).to_pylist()]
    return [None if at is None else texts[at] for at in column.indices.to_pylist()]


def _checked(part: Path, table: str, columns: Sequence[str]) -> pq.ParquetFile:
    """A part that is within the bounds and has the columns that runs write. It can lie about its size.

    pyarrow gets the path. With a file of Python's, a thread of pyarrow may free bytes of Python's while Python ends,
    which aborts the program."""
    with open_regular(part) as file:
        file.seek(-8, os.SEEK_END)
        if int.from_bytes(file.read(4), "little") > FOOTER:
            raise ValueError("its footer is too large")
    about = pq.read_metadata(part)
    names = about.schema.names
    wanted = dict(zip(_stored(columns, names), columns, strict=True))
    groups = [about.row_group(number) for number in range(min(about.num_row_groups, GROUPS + 1))]
    found = (group.column(number) for group in groups for number in range(group.num_columns))
    size = sum(abs(each.total_uncompressed_size) for each in found if each.path_in_schema in wanted)
    count = sum(abs(group.num_rows) for group in groups)
    if len(groups) > GROUPS or count > MOST or size > READ:
        raise ValueError(f"it has {len(groups)} groups, {count} rows and {size} bytes")
    kinds = {name: TABLES[table].field(column).type for name, column in wanted.items()}
    texts = [name for name in names if kinds.get(name) == pa.string()]
    rows = pq.ParquetFile(part, metadata=about, read_dictionary=texts)
    for name, kind in kinds.items():
        wanted = pa.dictionary(pa.int32(), kind) if kind == pa.string() else kind
        if not (name in LATER and name not in names) and rows.schema_arrow.field(name).type != wanted:
            raise ValueError(f"its column {name} is not what runs write")
    return rows


def answer_columns(
    node: str, question: Question, completion: Completion, reward: float, right: str | None
) -> dict[str, Any]:
    """What the rollouts and the transcripts have of an answer. `right`: a right one."""
    pairs = zip_longest(completion.turns, completion.observations, fillvalue="")
    conversation = json.dumps([list(pair) for pair in pairs], ensure_ascii=False)
    return {
        "node": node,
        "task": question.id.task,
        "prompt": question.shown,
        "completion": completion.text,
        "finish_reason": completion.finish_reason.value,
        "reward": reward,
        "answer": right,
        "conversation": conversation if completion.observations else None,
    }


def turns_of(text: str | None) -> list[tuple[str, str]] | None:
    """The turns in a column `conversation`. None for no text, and for what is none."""
    try:
        return None if text is None else _conversations.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):  # a stranger may have written it
        return None


_conversations = msgspec.json.Decoder(list[tuple[str, str]])
