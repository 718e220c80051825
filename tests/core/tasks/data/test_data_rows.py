"""Rows of anybody's: the same in every copy, found again, and refused in one line that names them."""

from __future__ import annotations

import json
import math
import os
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from data_files import SUMS, data_config, write
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.answers import score
from shoal.errors import UserError
from shoal.tasks import Tasks
from shoal.tasks.data.forms import form_of
from shoal.tasks.data.rows import Row, Unusable, encoded, identified, row_of
from shoal.tasks.data.sources import sides_of
from shoal.tasks.data.spec import data_spec
from shoal.tasks.data.store import Rows, Writer
from shoal.tasks.data.task import data_task

texts = st.text(st.characters(codec="utf-8"), min_size=1, max_size=30).filter(str.strip)
turns = st.lists(st.tuples(st.sampled_from(["system", "user", "assistant"]), texts), max_size=3)
prompts = texts | st.builds(lambda before, last: [*before, ("user", last)], turns, texts)
rows = st.builds(Row, prompts, st.none() | texts, st.dictionaries(texts, texts | st.integers(0, 9), max_size=2))
FORM = form_of(data_spec({"path": "x.jsonl"}), ["prompt", "answer"], [], "x.jsonl")


def different(most: int, least: int = 0) -> st.SearchStrategy[list[Row]]:
    return st.lists(rows, min_size=least, max_size=most, unique_by=lambda row: repr(row.turns))


@settings(max_examples=60)
@given(different(8, 1), different(3))
def test_rows_come_back_and_their_hash_says_which_they_are(train: list[Row], test: list[Row]) -> None:
    def kept(folder: Path, train: list[Row], test: list[Row]) -> tuple[str, list[Row], Rows]:
        writer = Writer(folder)
        for side, some in ((False, train), (True, test)):
            for row in some:
                writer.add(row, side)
        writer.close()
        found = Rows(folder)
        return writer.content, [found[number] for number in range(len(found))], found

    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        content, back, found = kept(Path(one), train, test)
        assert back == [*train, *test]
        assert all(found.holds_out(row.text) for row in test)
        assert {found.holds_out(row.text) for row in train if row.text not in {held.text for held in test}} <= {False}
        bare = [Row(row.turns, row.answer) for row in train]
        assert kept(Path(other), bare, test)[0] == content, "other columns and a chat of one turn change nothing"
        asked = [(row.turns, row.answer) for row in train]
        moved = [*train[1:], train[0]]
        with tempfile.TemporaryDirectory() as third:
            assert (kept(Path(third), moved, test)[0] == content) == (
                asked == [(row.turns, row.answer) for row in moved]
            )


@given(rows, rows)
def test_what_the_hash_covers_tells_rows_apart(one: Row, other: Row) -> None:
    same = (one.turns, one.answer) == (other.turns, other.answer)
    assert (identified(one) == identified(other)) == same


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)


@given(anything | st.fixed_dictionaries({"prompt": anything, "answer": anything}))
def test_any_row_is_used_or_refused_with_a_reason(raw: Any) -> None:
    reason = ""
    try:
        row = row_of(raw, FORM)
        assert encoded(row)
        assert row.text.strip() or isinstance(row.prompt, list)
    except Unusable as error:
        reason = str(error)
    assert len(reason) < 300


@settings(max_examples=40)
@given(st.binary(max_size=300) | st.lists(anything, max_size=4).map(lambda all: json.dumps(str(all)).encode()))
def test_any_bytes_are_read_or_refused_in_a_line(data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        for ending in (".jsonl", ".json", ".csv", ".tsv", ".csv.gz", ".jsonl.zst", ".parquet", ".arrow", ".xlsx"):
            path = Path(folder) / f"x{ending}"
            path.write_bytes(data)
            said = ""
            try:
                train, _ = sides_of(data_spec({"path": str(path)}))
                assert train is not None
                assert all(number > 0 for number, _ in train.rows())
            except UserError as error:
                said = str(error)
            assert "\n" not in said


def lines(path: Path, *rows: str) -> Path:
    path.write_text("".join(f"{row}\n" for row in [*(json.dumps(row) for row in SUMS), *rows]))
    return path


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"prompt": "", "answer": "1"}', "row 101 of q.jsonl has no 'prompt'"),
        ('{"answer": "1"}', "has no 'prompt'"),
        ('{"prompt": "a"}', "has no 'answer'"),
        ('{"prompt": "a", "answer": " "}', "has no right answer in 'answer'"),
        ('{"prompt": "a", "answer": ' + "1" * 5000 + "}", "row 101 of q.jsonl"),
        ('{"prompt": 7, "answer": "1"}', "has a number in 'prompt'"),
        ('{"prompt": "a", "answer": {"x": 1}}', "has an object in 'answer'"),
        (
            '{"prompt": [{"role": "tool", "content": "x"}], "answer": "1"}',
            "has a message of 'tool' in 'prompt': each needs a role",
        ),
        ('{"prompt": [{"role": "user", "content": ["x"]}], "answer": "1"}', "a text as its content"),
        ('{"prompt": [{"role": "assistant", "content": "x"}], "answer": "1"}', "does not end with a message"),
        ("{nothing", "is not JSON"),
        ("[1]", "is not an object"),
        ("[" * 10_000, "is not JSON"),
        (json.dumps({"prompt": "x" * 100_001, "answer": "1"}), "100,000 are the most"),
        (json.dumps({"prompt": "x", "answer": "1", "more": "x" * 2**20}), "1,048,576"),
        (json.dumps({"prompt": "x", "answer": "1", "more": "x" * 5_000_000}), "more than 1,048,576 bytes"),
    ],
)
def test_a_row_that_cannot_be_used_is_left_out_and_named(tmp_path: Path, row: str, reason: str) -> None:
    task = data_task(path=str(lines(tmp_path / "q.jsonl", row, '{"prompt": "last", "answer": "1"}')))
    assert (task.info.train, task.info.skipped) == (101, 1)
    assert reason in task.info.first
    assert "row 101 of q.jsonl" in task.info.first
    assert "last" in {task.question(seed, 0).text for seed in range(2000)}


@pytest.mark.parametrize("row", [{"prompt": "x" * 300_000, "answer": "1"}, {"prompt": "x", "answer": "1" * 200_000}])
def test_a_long_text_in_a_csv_file_is_a_row_that_is_left_out(tmp_path: Path, row: dict[str, str]) -> None:
    info = data_task(path=str(write(tmp_path / "q.csv", [*SUMS, row, SUMS[0]]))).info
    assert (info.train, info.skipped) == (101, 1)
    assert "row 102 of q.csv" in info.first, "the line in the file, below the names of columns"


def test_marks_without_end_on_one_letter_are_a_row_that_is_left_out(tmp_path: Path) -> None:
    """To compose them takes seconds, in which nothing can be interrupted."""
    row = json.dumps({"prompt": "a" + "\u0301" * 40_000 + "\u0327" * 40_000, "answer": "1"})
    info = data_task(path=str(lines(tmp_path / "q.jsonl", row))).info
    assert "more than 30 marks on one letter" in info.first


def test_a_cell_that_python_cannot_hold_is_one_row_that_is_left_out(tmp_path: Path) -> None:
    pyarrow = pytest.importorskip("pyarrow")
    parquet = pytest.importorskip("pyarrow.parquet")
    late = pyarrow.array([0] * 100 + [2**62], pyarrow.timestamp("us"))
    asked = [*(row["prompt"] for row in SUMS[:100]), "last"]
    table = pyarrow.table({"prompt": asked, "answer": ["1"] * 101, "when": late})
    parquet.write_table(table, tmp_path / "q.parquet")
    info = data_task(path=str(tmp_path / "q.parquet")).info
    assert (info.train, info.skipped) == (100, 1)
    assert "row 101 of q.parquet cannot be read" in info.first


def test_a_pipe_that_looks_like_a_table_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "q.parquet")
    with pytest.raises(UserError, match=r"there is no file|not an ordinary file"):
        data_task(path=str(tmp_path / "q.parquet"))


def test_a_table_with_columns_without_end_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.csv").write_text(",".join(map(str, range(20_000))) + "\n")
    with pytest.raises(UserError, match="20,000 columns"):
        data_task(path=str(tmp_path / "q.csv"))


@pytest.mark.parametrize("first", [{"prompt": "first"}, {"version": 1}])
def test_a_first_row_without_a_column_is_one_row_that_is_left_out(tmp_path: Path, first: dict[str, Any]) -> None:
    task = data_task(path=str(write(tmp_path / "q.jsonl", [first, *SUMS])))
    assert (task.info.train, task.info.skipped, task.info.answer) == (100, 1, "answer")
    assert task.info.first.startswith("row 1 of q.jsonl has no ")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1e16, "10000000000000000"),
        (0.00001, "0.00001"),
        (12.0, "12"),
        (Decimal("1.50"), "1.50"),
        (2**100, str(2**100)),
        (math.nan, None),
        (math.inf, None),
        (Decimal("NaN"), None),
    ],
)
def test_numbers_are_their_digits(value: Any, text: str | None) -> None:
    raw = {"prompt": "a", "answer": value}
    if text is None:  # as tables have it where a number is missing
        with pytest.raises(Unusable, match="has no number in 'answer'"):
            row_of(raw, FORM)
    else:
        row = row_of(raw, FORM)
        assert row.answer == text
        assert encoded(row)
        assert score("number", f"It is {text}.", text) == 1.0


def test_many_such_rows_are_refused(tmp_path: Path) -> None:
    path = lines(tmp_path / "q.jsonl", *['{"prompt": ""}'] * 20)
    with pytest.raises(UserError, match=r"20 of 120 rows cannot be used: row 101 of q.jsonl has no 'prompt'"):
        data_task(path=str(path))


@pytest.mark.parametrize(
    ("name", "content", "more", "message"),
    [
        (
            "q.csv",
            "x,y,z\nx,1,2\n",
            {},
            "has no column for the prompt .* it has x, y, z: say --data '...,prompt=COLUMN'",
        ),
        ("q.csv", "prompt,a\nx,1\n", {"answer": "b"}, "has no column 'b' for the answer; it has prompt, a"),
        ("q.csv", 'prompt,answer\n"x,1\n', {}, "row 2 of q.csv cannot be read .*double the quotation marks"),
        ("q.csv", 'prompt,answer\n"x,1\ny,2\n', {}, "row 2 opens a quotation mark that nothing closes"),
        ("q.csv", b"prompt,answer\n\x81\xff,1\n", {}, "row 2 of q.csv has in 'prompt' a byte that is no text"),
        ("q.csv", "prompt,answer,answer\nx,1,2\n", {}, "has 2 columns named 'answer'"),
        ("q.xlsx", "x", {}, "cannot be read"),
        ("q.json", "[[1], 2", {}, "is not JSON"),
        ("q.json", "7", {}, "no array of rows"),
        ("q.jsonl", "", {}, "has no rows"),
        ("q.parquet", "PAR1", {}, "cannot be read after row 0"),
        ("q.pdf", "x", {}, "files of data end with"),
        ("q.zip", "x", {}, "unzip it first"),
        ("gone.jsonl", None, {}, "there is no file"),
        ("x" * 5000, None, {}, "path of a data set: File name too long"),
        ("q.jsonl", '{"prompt":"a"}', {"split": "test"}, "is one file, without splits"),
        ("q.jsonl", '{"prompt":"a"}', {"held_out": "test"}, "has no split 'test' to hold out"),
        ("q.jsonl", '{"prompt":"a"}', {"held_out": "q.jsonl"}, "the same rows"),
        ("q.jsonl", '{"prompt":"a"}', {"split": "none", "held_out": "hash"}, "say what is held out"),
        ("q.jsonl", '{"prompt":"a"}', {"score": "nmber"}, "did you mean 'number'"),
        ("q.jsonl", '{"prompt":"a"}', {"skore": "number"}, "did you mean 'score'"),
        ("q.jsonl", '{"prompt":"a"}', {"gold": "("}, "no regular expression"),
        ("q.jsonl", '{"prompt":"a"}', {"name": "a/b"}, "letters, digits"),
        ("q.jsonl", '{"prompt":"a"}', {"prompt": 7}, "parameters of a data set"),
    ],
)
def test_mistakes_are_said_in_a_line(
    tmp_path: Path, name: str, content: str | bytes | None, more: dict[str, Any], message: str
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(UserError, match=message) as caught:
        data_task(path=name, **more)
    assert "\n" not in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "taken").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "taken"))
    with pytest.raises(UserError, match=f"cannot write {tmp_path}/taken/.*set XDG_CACHE_HOME"):
        data_task(path=str(write(tmp_path / "q.jsonl", SUMS)))


def test_a_pipe_is_no_file(tmp_path: Path) -> None:
    import os

    os.mkfifo(tmp_path / "q.jsonl")
    with pytest.raises(UserError, match=r"q.jsonl cannot be read: .*not an ordinary file"):
        data_task(path="q.jsonl")


def test_two_data_sets_of_one_name_are_told_apart(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    config = data_config(write(tmp_path / "q.jsonl", SUMS))
    config.sources += data_config(write(tmp_path / "b" / "q.jsonl", SUMS[1:])).sources
    assert Tasks(config).labels == ["q#1", "q#2"]
