"""verifiers as it is installed, otherwise its stand-in; and tasksets in a folder of their own."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tasksets import Write

STAND_IN = Path(__file__).parents[2] / "support" / "verifiers_standin"


@pytest.fixture(scope="package", autouse=True)
def _verifiers() -> Iterator[None]:
    """The stand-in is found by this process and by those that it starts, where there is no verifiers."""
    path = list(sys.path)
    found = importlib.util.find_spec("verifiers")  # this folder is called so, too, and has no origin
    if found is None or found.origin is None:
        sys.path.append(str(STAND_IN))
    yield
    sys.path[:] = path


@pytest.fixture
def taskset(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into a folder, in which the test then is. A name serves once in a process."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name: str, text: str) -> str:
        (tmp_path / f"{name}.py").write_text(text)
        return f"verifiers:{name}"

    return write
