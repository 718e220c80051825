"""A notebook shows what its cells print today: each runs from top to bottom in a new kernel, in an empty folder."""

from __future__ import annotations

from pathlib import Path

import pytest
from test_docs import script

pytest.importorskip("nbclient")
pytest.importorskip("ipykernel")
notebooks = script("notebooks")


@pytest.mark.timeout(600)  # ten minutes, on a busy processor
@pytest.mark.parametrize("path", notebooks.NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_shows_what_its_cells_print(path: Path) -> None:
    today = notebooks.as_compared(notebooks.executed(path))
    shown = notebooks.as_compared(notebooks.read(path))
    assert shown == today, "run scripts/notebooks.py and look at the difference"
