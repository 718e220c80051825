"""The notebooks, without running them; `integration/test_notebooks.py` runs them."""

from __future__ import annotations

import re
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
from test_docs import DOCS, ROOT, script

pytest.importorskip("nbclient")
notebooks = script("notebooks")
MOST_BYTES = 60_000
SITE = re.compile(r"https://shoal-rl\.github\.io/shoal/([\w/-]*)")
NEIGHBOUR = re.compile(r"\]\(([\w-]+\.ipynb)\)")

each = pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)


def test_there_are_four() -> None:
    assert [path.stem[:2] for path in notebooks.NOTEBOOKS] == ["01", "02", "03", "04"]


@each
def test_it_is_small_and_ran_from_top_to_bottom(path: Path) -> None:
    assert path.stat().st_size < MOST_BYTES
    cells = notebooks.read(path).cells
    assert 8 <= len(cells) <= 15
    code = [cell for cell in cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    outputs = [output for cell in code for output in cell.outputs]
    assert outputs
    assert not [output for output in outputs if output.output_type == "error" or output.get("name") == "stderr"]


@each
def test_its_links_lead_somewhere(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    for page in SITE.findall(text):
        here = DOCS / page.strip("/")
        assert here.with_suffix(".md").exists() or (here / "README.md").exists(), page
    assert all((path.parent / name).exists() for name in NEIGHBOUR.findall(text))
    assert f"/main/{path.relative_to(ROOT).as_posix()})" in text


@each
def test_it_runs_unchanged_on_a_gpu(path: Path) -> None:
    """No cell says where to compute: shoal takes a GPU where there is one."""
    code = "".join(cell.source for cell in notebooks.read(path).cells if cell.cell_type == "code")
    assert not re.search(r"device|cuda|cpu|\bmps\b", code)


def compared(text: str, tags: list[str] | None = None) -> Any:
    import nbformat.v4 as v4

    cell = v4.new_code_cell(outputs=[v4.new_output("stream", text=text)], metadata={"tags": tags or []})
    return notebooks.as_compared(v4.new_notebook(cells=[cell]))


def test_digits_and_what_models_say_may_differ_and_words_may_not() -> None:
    seen = compared("hopeful-lapwing-f984  pass@1 0.26 \n said 'Let me think.'")
    assert compared("lucid-koala-4454  pass@1  1e-05\n said '12'") == seen
    assert compared("hopeful-lapwing-f984  pass@2 0.26 \n says 'Let me think.'") != seen


def test_a_cell_that_varies_still_has_to_show_something() -> None:
    assert compared("in touch", ["varies"]) == compared("alone", ["varies"])
    silent = deepcopy(notebooks.read(notebooks.NOTEBOOKS[0]))
    silent.cells[1].outputs = []
    assert notebooks.as_compared(silent) != notebooks.as_compared(notebooks.read(notebooks.NOTEBOOKS[0]))
