"""Files of data as people have them are read as a person would read them, or refused with what to do."""

from __future__ import annotations

from pathlib import Path

import pytest
from files import Case, cases, read


@pytest.mark.parametrize("case", cases(), ids=lambda case: case.name)
def test_a_file_is_read_as_a_person_would(case: Case, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    if case.name.startswith("saved"):
        pytest.importorskip("datasets")
    shown, fault = read(case, tmp_path)
    assert not fault, shown
