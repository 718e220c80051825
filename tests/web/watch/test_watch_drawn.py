"""Drawings among answers, as the window gets them."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from watched import HOSTILE, completion, write_run

pytest.importorskip("duckdb")

from shoal_web.watch.folder import FolderSource
from shoal_web.watch.pictures import drawing_in, with_drawings
from shoal_web.watch.source import RowQuery

CIRCLE = '<svg viewBox="0 0 32 32"><circle cx="6" cy="6" r="4" fill="red" onclick="hacked=1"/></svg>'
PLAIN = '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><circle cx="6" cy="6" r="4" fill="red"/></svg>'


def test_a_rollout_of_drawings_has_them_as_plain_shapes(tmp_path: Path) -> None:
    rows = [completion("ada", text, answer=CIRCLE) for text in (f"Here: {CIRCLE}", "a circle")]
    run = write_run(tmp_path / "run", rollouts={1: rows})
    with closing(FolderSource(run, "run")) as source:
        found = source.rollout(RowQuery(part=1, row=0))
    assert found["drawing"] == PLAIN
    assert [each["drawing"] for each in found["completions"]] == [PLAIN, None]


def test_what_is_no_drawing_is_none() -> None:
    assert with_drawings([{"completion": text} for text in HOSTILE]) == [
        {"completion": text, "drawing": None} for text in HOSTILE
    ]
    assert drawing_in(None) is None
