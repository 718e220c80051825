"""Data sets for tests."""

from __future__ import annotations

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet

from shoal.config.tasks import TasksConfig

Rows = Sequence[dict[str, Any]]
SUMS: Rows = [{"prompt": f"{a} + {b} =", "answer": str(a + b)} for a in range(10) for b in range(10)]


def write(path: Path, rows: Rows) -> Path:
    """Writes rows in the format that the file's ending says."""
    match path.suffix:
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        case ".csv" | ".tsv":
            with path.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]), delimiter="," if path.suffix == ".csv" else "\t")
                writer.writeheader()
                writer.writerows(rows)
        case ".parquet":
            pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path, row_group_size=3)
    return path


def data_config(path: str | Path, more: dict[str, Any] | None = None, **spec: Any) -> TasksConfig:
    """The settings of a task of this data set. `more`: its parameters."""
    task = {"name": "data", "parameters": {"path": str(path), **(more or {})}, **spec}
    return TasksConfig.model_validate({"sources": [task]})


def small_functions(path: Path, **spec: Any) -> TasksConfig:
    """The settings of a task whose answers are programs: f(n) adds a number, by three tests in MBPP's columns."""
    rows = [
        {
            "text": f"Write a function f(n) that returns n plus {number}.",
            "code": f"def f(n):\n    return n + {number}",
            "test_list": [f"assert f({n}) == {n + number}" for n in (1, 3, 8)],
        }
        for number in range(1, 100)
    ]
    return data_config(write(path, rows), **spec)
