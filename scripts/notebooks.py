"""Runs the notebooks of `notebooks/` and keeps what their cells printed.

    python scripts/notebooks.py                                       # all of them
    python scripts/notebooks.py notebooks/02-own-data.ipynb           # one of them

A notebook runs from top to bottom in a new kernel, in an empty folder, with a home and a cache of its own. CI runs them
so, too, and fails where a cell prints something else than the notebook shows (`as_compared`).
"""

from __future__ import annotations

import argparse
import os
import re
import tempfile
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient
from traitlets.config import Config

ROOT = Path(__file__).resolve().parent.parent
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
SECONDS = 240
"""The longest that one cell may take, on a busy machine."""
QUIET = {"PYTHONWARNINGS": "ignore:IProgress not found"}
"""tqdm misses ipywidgets."""
SIMILAR = (
    (re.compile(r"'[^'\n]*'"), "TEXT"),  # what a model says, by repr
    (re.compile(r"\b[a-z]+-[a-z]+-[0-9a-f]{4}\b"), "NAME"),  # of a key
    (re.compile(r"[-+]?\d+(?:[.,:]\d+)*(?:e[-+]?\d+)?"), "#"),
    (re.compile(r"\s+"), " "),
)
"""What differs between processors and from one time to the next, and what stands for it in a comparison."""


def read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)


def executed(path: Path) -> Any:
    """The notebook at `path` with what its cells print today. Raises nbclient's `CellExecutionError`."""
    notebook = read(path)
    with tempfile.TemporaryDirectory() as folder:
        own = {"SHOAL_HOME": "home", "XDG_CACHE_HOME": "cache", "IPYTHONDIR": "ipython"}
        places = {name: str(Path(folder) / place) for name, place in own.items()}
        work = Path(folder) / "work"
        work.mkdir()
        client = NotebookClient(
            notebook,
            config=Config({"KernelManager": {"transport_encryption": "auto"}}),
            timeout=SECONDS,
            startup_timeout=SECONDS,
            kernel_name="python3",
            record_timing=False,
            resources={"metadata": {"path": str(work)}},
        )
        client.execute(env=os.environ | places | QUIET)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    notebook.metadata = {"kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"}}
    return notebook


def as_compared(notebook: Any) -> list[list[str]]:
    """What each cell of code shows, without what may differ: numbers, names of keys, what models say, pixels. Of a cell
    with the tag `varies` only the kinds of what it shows count."""
    return [
        [_kind(output) if "varies" in cell.metadata.get("tags", []) else _similar(output) for output in cell.outputs]
        for cell in notebook.cells
        if cell.cell_type == "code"
    ]


def _kind(output: Any) -> str:
    return " ".join((output.output_type, *sorted(output.get("data", {}))))


def _similar(output: Any) -> str:
    text = _text(output)
    for pattern, stands_for in SIMILAR:
        text = pattern.sub(stands_for, text)
    return f"{_kind(output)}: {text.strip()}"


def _text(output: Any) -> str:
    if "image/png" in output.get("data", {}):
        return ""
    return str(output["text"] if output.output_type == "stream" else output.get("data", {}).get("text/plain", ""))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("notebooks", nargs="*", type=Path, default=NOTEBOOKS)
    args = parser.parse_args()
    for path in args.notebooks:
        nbformat.write(executed(path), path)
        print(path)


if __name__ == "__main__":
    main()
