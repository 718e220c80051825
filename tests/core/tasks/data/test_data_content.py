"""The hash of a data set's content is that of its questions and right answers, whatever kind of file has them."""

from __future__ import annotations

import csv
import gzip
import json
import os
import tempfile
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.tasks.data.task import data_task

texts = st.text(st.characters(categories=["L", "N", "P", "S", "Zs"]) | st.just("\n"), min_size=1, max_size=20)
asked = st.lists(texts.filter(str.strip), min_size=1, max_size=5, unique_by=lambda text: " ".join(text.split()))
numbers = st.integers(-(10**6), 10**6) | st.integers(-(10**9), 10**9).map(lambda n: n / 1000)
small = st.sampled_from([1e-7, 2.5e-9, 1e16, 0.1, 12.0])


def files(room: Path, questions: list[str], answers: list[Any]) -> list[Path]:
    """The same rows in every kind of file."""
    import openpyxl
    import pyarrow
    import pyarrow.parquet

    rows = [{"question": one, "answer": right} for one, right in zip(questions, answers, strict=True)]
    text = "".join(json.dumps(row) + "\n" for row in rows).encode()
    (room / "lines.jsonl").write_bytes(text)
    (room / "packed.jsonl.gz").write_bytes(gzip.compress(text))
    (room / "array.json").write_text(json.dumps(rows, indent=1, ensure_ascii=False), encoding="utf-8")
    for name, separator, encoding in (("a.csv", ",", "utf-8"), ("b.csv", ";", "utf-8-sig"), ("c.txt", "\t", "utf-16")):
        with (room / name).open("w", newline="", encoding=encoding) as file:
            writer = csv.writer(file, delimiter=separator)
            writer.writerows([["question", "answer"], *([row["question"], row["answer"]] for row in rows)])
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), room / "table.parquet")
    book = openpyxl.Workbook()
    book.active.append(["question", "answer"])
    for number, row in enumerate(rows, 2):
        for column, value in enumerate(row.values(), 1):
            book.active.cell(number, column).value = value
            if isinstance(value, str):
                book.active.cell(number, column).data_type = "s"  # "=1" is a text here
    book.save(room / "book.xlsx")
    return sorted(path for path in room.iterdir() if path.is_file())


@pytest.mark.slow
@settings(max_examples=25, deadline=None)
@given(st.data(), asked)
def test_every_kind_of_file_with_the_same_rows_has_the_same_content(data: st.DataObject, questions: list[str]) -> None:
    kind = data.draw(st.sampled_from([numbers.map(float), st.integers(-99, 10**6), small, st.booleans(), texts]))
    filled = kind.filter(lambda one: str(one).strip() != "")
    answers = data.draw(st.lists(filled, min_size=len(questions), max_size=len(questions)))
    with tempfile.TemporaryDirectory() as name, mock.patch.dict(os.environ, {"XDG_CACHE_HOME": f"{name}/cache"}):
        found = {path.name: data_task(path=str(path)).info.content for path in files(Path(name), questions, answers)}
        assert len(set(found.values())) == 1, found
