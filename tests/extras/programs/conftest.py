"""Data sets in files, and a cache of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from shoal_extras.programs import wasi_module


@pytest.fixture(scope="session")
def python_in_wasi() -> Path | None:
    """CPython for WASI in the user's cache, where it is installed: it takes long to compile."""
    return wasi_module.prepared()


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, python_in_wasi: Path | None) -> Path:
    """The cache of data sets, of this test alone. It has CPython for WASI."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    if python_in_wasi is not None:
        folder = tmp_path / "cache" / "shoal" / "wasi"
        folder.mkdir(mode=0o700, parents=True)
        os.link(python_in_wasi, folder / python_in_wasi.name)
    return tmp_path / "cache" / "shoal" / "data"
