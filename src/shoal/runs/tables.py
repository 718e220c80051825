"""The tables of a run: folders of parquet files, which `pandas.read_parquet(folder)` reads as one."""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from shoal.errors import UserError
from shoal.runs.atomic import disk_errors, write_atomically
from shoal.untrusted import json_safe, open_regular, printable

ROLLOUTS, LEARNED, TRANSCRIPTS = "rollouts.parquet", "learned.parquet", "transcripts.parquet"
PART_BYTES = 16 << 20
"""The size in memory at which a file is closed. Each checkpoint writes the open file again."""


def _columns(text: str) -> pa.Schema:
    return pa.schema([(name, pa.type_for_alias(kind)) for name, kind in (word.split(":") for word in text.split())])


SCHEMA = _columns(
    "round:int64 node:string task:string version:string config:string seed:int64 index:int64 question:string "
    "completion:string finish_reason:string reward:double live:bool answer:string conversation:string"
)
"""The columns of the rollouts: a row for each completion. `answer`: a right one, null where the task names none.
`conversation`: where an environment answered back, a list of [turn, observation] in JSON; else null."""
LEARNED_SCHEMA = _columns(
    "round:int64 node:string maker:string made:int64 slot:int64 task:string config:string seed:int64 index:int64 "
    "live:bool mean_reward:double foreign:bool gradient_share:double gated_share:double"
)
"""The columns of what was learned from: a row for each rollout. `made`: the maker's round. `mean_reward`: by the
learner's own verifier. For the shares see `metrics.learned_rows`."""
TRANSCRIPT_SCHEMA = _columns(
    "round:int64 node:string task:string question:string completion:string finish_reason:string reward:double "
    "answer:string identity:string conversation:string"
)
"""The columns of the transcripts: a row for each kept question in each evaluation (`runs.transcripts`). `identity`: the
version of its task, its seed and its index. `conversation`: as in the rollouts."""
LATER = frozenset({"answer", "conversation", "identity"})
"""Columns that tables of older runs do not have, and that rows may leave out."""
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
            self.close_file()

    def close_file(self) -> None:
        """Begins another file with the next rows."""
        self._open = []

    def rewind(self, round: int) -> None:
        """Drops the rows of later rounds."""
        self.close_file()
        for part in self.folder.glob("*.parquet"):
            with disk_errors(part):
                table = pq.read_table(part)
                rounds = table["round"].to_numpy()
                if rounds.min() > round:
                    part.unlink()
                elif rounds.max() > round:
                    _write(part, table.filter(pa.array(rounds <= round)))


def _write(path: Path, table: pa.Table) -> None:
    buffer = io.BytesIO()
    pq.write_table(table, buffer, compression="zstd")
    write_atomically(path, buffer.getvalue())


def read_makers(run: Path, node: str, last: int = 2**53) -> tuple[int, list[tuple[str, int, float]]]:
    """How many own rollouts `node` learned from up to the round `last`; and every other maker's name, number of
    rollouts and mean share of the gradient over the rounds that had an update, the largest first. Raises `UserError`
    for files that are no tables."""
    rounds: set[int] = set()
    counts: Counter[tuple[str, bool]] = Counter()
    totals: dict[tuple[str, bool], float] = {}
    for table in _learned(run, ["round", "node", "maker", "foreign", "gradient_share"]):
        mine = table.filter(pc.and_(pc.equal(table["node"], node), pc.less_equal(table["round"], last)))
        rounds.update(_taught(mine))
        for row in mine.select(["maker", "foreign", "gradient_share"]).to_pylist():
            whose = (row["maker"] or "", bool(row["foreign"]))
            counts[whose] += 1
            totals[whose] = totals.get(whose, 0.0) + (row["gradient_share"] or 0.0)
    own = sum(count for (_, foreign), count in counts.items() if not foreign)
    others = [
        (maker, counts[maker, True], totals[maker, True] / max(1, len(rounds))) for maker, foreign in counts if foreign
    ]
    return own, sorted(others, key=lambda item: (-item[2], item[0]))


def _taught(table: pa.Table) -> list[int]:
    """The rounds that had an update."""
    found: list[int] = table.filter(table["gradient_share"].is_valid())["round"].unique().to_pylist()
    return found


def _learned(run: Path, columns: list[str]) -> Iterator[pa.Table]:
    """These columns of what was learned in a run, file by file."""
    for part in sorted((run / LEARNED).glob("*.parquet")):
        try:
            with open_regular(part) as file:
                # not by read_table, whose threads may abort or hang at the end of the program (apache/arrow#50482)
                table = pq.ParquetFile(file).read(columns, use_threads=False)
                yield table.cast(pa.schema([LEARNED_SCHEMA.field(column) for column in columns]))
        except (OSError, ValueError, TypeError, KeyError, pa.ArrowException) as error:
            raise UserError(f"cannot read {part}: {printable(str(error), 200)}") from error
