"""The tables of a run: whose rollouts a node learned from, also of a stranger's run."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pandas
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from shoal.errors import UserError
from shoal.runs import tables
from shoal.runs.tables import LEARNED, LEARNED_SCHEMA, TRANSCRIPT_SCHEMA, TRANSCRIPTS, Table, read_table
from shoal.runs.transcripts import pairs
from shoal_extras.export import story
from shoal_extras.export.story import read_makers


def learned(maker: str, share: float | None, peer: bool = True) -> dict[str, Any]:
    row: dict[str, Any] = dict.fromkeys(LEARNED_SCHEMA.names) | {"node": "ada", "maker": maker, "peer": peer}
    return row | {"gradient_share": share}


def shares(run: Path) -> dict[str, float]:
    return {maker: share for maker, _, share in read_makers(run, "ada")[1]}


def test_shares_are_means_over_rounds_and_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.runs.tables.PART_BYTES", 0)
    assert shares(tmp_path) == {}
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    table.add(1, [learned("bob", 0.1), learned("bob", 0.1), learned("ada", 0.8, peer=False)])
    table.write()
    table.add(2, [learned("eve", 0.5), learned("bob", 0.2), learned("ada", 0.3, peer=False)])
    table.write()
    table.add(3, [learned("bob", None), learned("ada", None, peer=False)])  # no update: nothing is live
    table.write()
    assert len(list((tmp_path / LEARNED).iterdir())) == 3
    assert shares(tmp_path) == pytest.approx({"eve": 0.25, "bob": 0.2})
    assert list(shares(tmp_path)) == ["eve", "bob"]


def test_what_is_no_table_is_one_line(tmp_path: Path) -> None:
    (tmp_path / LEARNED).mkdir()
    part = tmp_path / LEARNED / "from-round-000001.parquet"
    part.write_bytes(b"PAR1 nothing PAR1")
    with pytest.raises(UserError, match="cannot read"):
        shares(tmp_path)
    part.unlink()
    os.mkfifo(part)
    with pytest.raises(UserError, match="not an ordinary file"):
        shares(tmp_path)


def test_a_table_is_read_in_pieces_with_the_same_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    for round in range(1, 4):
        table.add(round, [learned("bob", 0.1), learned("eve", 0.5), learned("ada", 0.8, False)])
    table.write()
    whole = read_makers(tmp_path, "ada"), read_makers(tmp_path, "ada", 2), read_makers(tmp_path, "nobody")
    assert whole[0] == (3, [("eve", 3, pytest.approx(0.5)), ("bob", 3, pytest.approx(0.1))])
    assert whole[1:] == ((2, [("eve", 2, 0.5), ("bob", 2, 0.1)]), (0, []))
    monkeypatch.setattr(tables, "BATCH", 2)
    pieces = read_makers(tmp_path, "ada"), read_makers(tmp_path, "ada", 2), read_makers(tmp_path, "nobody")
    assert str(pieces) == str(whole)


@pytest.mark.parametrize(
    ("bound", "said"),
    [("MOST", "2 rows"), ("READ", "bytes"), ("GROUPS", "groups"), ("FOOTER", "footer"), ("MAKERS", "makers")],
)
def test_a_part_beyond_the_bounds_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bound: str, said: str
) -> None:
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    table.add(1, [learned("bob", 0.1), learned("eve", 0.5)])
    table.write()
    assert shares(tmp_path) == {"bob": 0.1, "eve": 0.5}
    monkeypatch.setattr(story if bound == "MAKERS" else tables, bound, 0)
    with pytest.raises(UserError, match=said):
        shares(tmp_path)


@pytest.mark.parametrize("column", ["node", "maker", "round", "peer", "gradient_share"])
def test_columns_that_no_run_writes_are_one_line(tmp_path: Path, column: str) -> None:
    (tmp_path / LEARNED).mkdir()
    part = tmp_path / LEARNED / "from-round-000001.parquet"
    row = learned("bob", 0.1) | {"round": 1}
    whole = pa.Table.from_pylist([row], LEARNED_SCHEMA)
    place = whole.column_names.index(column)
    for wrong in (whole.drop_columns(column), whole.set_column(place, column, pa.array([[["x"]]]))):
        pq.write_table(wrong, part)
        with pytest.raises(UserError, match="cannot read"):
            shares(tmp_path)


def test_a_text_in_many_rows_takes_memory_once(tmp_path: Path) -> None:
    """A file of some kilobytes, in which a text of a megabyte stands in each of 400 rows."""
    same, long = pa.array([0] * 400, pa.int32()), "x" * 2**20
    texts = dict.fromkeys(("maker", "task", "prompt", "completion", "finish_reason"), long)
    values: dict[str, Any] = texts | {"node": "ada", "peer": True, "gradient_share": 0.5, "reward": 1.0}
    for name, schema in ((LEARNED, LEARNED_SCHEMA), (TRANSCRIPTS, TRANSCRIPT_SCHEMA)):
        (tmp_path / name).mkdir()
        rows = {field.name: pa.nulls(400, field.type) for field in schema} | {"round": pa.array(range(400))}
        for column in rows.keys() & values:
            rows[column] = pa.DictionaryArray.from_arrays(same, pa.array([values[column]]))
        pq.write_table(pa.table(rows), tmp_path / name / "from-round-000000.parquet", store_schema=False)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.parquet")) < 2**20
    before, pool = pa.default_memory_pool(), pa.proxy_memory_pool(pa.default_memory_pool())
    pa.set_memory_pool(pool)
    try:
        assert shares(tmp_path) == {"x" * 200: 0.5}
        [pair] = pairs(tmp_path, "ada")
    finally:
        pa.set_memory_pool(before)
    assert (pair.before.round, pair.after.round, len(pair.question)) == (0, 399, 1_000_000)
    assert pool.max_memory() < 100 * 2**20


def test_a_table_of_ones_own_is_what_pandas_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(read_table(tmp_path, LEARNED, ["round", "maker"])) == ["round", "maker"]
    monkeypatch.setattr(tables, "PART_BYTES", 0)
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    for round, maker in enumerate(("bob", "eve", "bob")):
        table.add(round, [learned(maker, None), learned("ada", 0.5, peer=False)])
        table.write()
    (tmp_path / LEARNED / ".from-round-000009.parquet.tmp").write_bytes(b"half")
    whole = read_table(tmp_path, LEARNED)
    assert whole.equals(pandas.read_parquet(tmp_path / LEARNED))


def test_tables_of_earlier_runs_are_read_under_the_names_of_today(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also beside parts with today's names: a resumed run has both."""
    monkeypatch.setattr(tables, "PART_BYTES", 0)
    for name, schema in tables.TABLES.items():
        table = Table(tmp_path / name, schema)
        for round in (1, 2):
            row = dict.fromkeys(schema.names) | {"node": "ada", "maker": "bob", "task": "t", "prompt": "2 + 2 ="}
            row |= {"completion": "4", "reward": round / 2, "finish_reason": "stop"}
            row |= {"peer": True, "gradient_share": 0.5, "identity": "1 2 3"}
            table.add(round, [{key: value for key, value in row.items() if key in schema.names and key != "round"}])
            table.write()
        part = tmp_path / name / "from-round-000001.parquet"
        whole = pq.ParquetFile(part).read()
        before = [tables.OLD_NAMES.get(column, column) for column in whole.column_names]
        pq.write_table(whole.rename_columns(before), part)
        assert read_table(tmp_path, name).columns.tolist() == schema.names
    assert read_table(tmp_path, tables.ROLLOUTS)["prompt"].tolist() == ["2 + 2 ="] * 2
    assert read_table(tmp_path, LEARNED, ["peer"])["peer"].tolist() == [True] * 2
    assert read_makers(tmp_path, "ada") == (0, [("bob", 2, 0.5)])
    [pair] = pairs(tmp_path, "ada")
    assert (pair.question, pair.before.reward, pair.after.reward) == ("2 + 2 =", 0.5, 1.0)


def test_nothing_reads_with_threads_that_outlive_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = Table(tmp_path / LEARNED, LEARNED_SCHEMA)
    for round in (1, 2):
        table.add(round, [learned("bob", 0.5)])
    table.write()
    monkeypatch.setattr(pq, "read_table", None)
    table.rewind(1)
    assert read_table(tmp_path, LEARNED)["round"].tolist() == [1]
    assert shares(tmp_path) == {"bob": 0.5}
