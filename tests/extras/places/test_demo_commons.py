"""`shoal demo commons`: nodes in turn learn from each other through a folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from shoal.cli import demo as commons
from shoal.cli.main import main
from shoal.runs.folder import read_metrics


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_who_comes_last_learns_from_all_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commons, "ROUNDS", 4)
    monkeypatch.setattr(commons, "EVERY", 2)
    assert main(["demo", "commons", "--out", str(tmp_path / "out")]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "right on questions that it never practised" in said
    assert all(f"{name}: " in said for name in (*commons.FIRST, commons.LATE))
    keys = {file.name.split("-")[1] for file in (tmp_path / "out" / "place").rglob("*-*") if file.is_file()}
    assert len(keys) == 4
    rows = read_metrics(tmp_path / "out" / commons.LATE)
    assert sum(row.get("rollouts/sampled") or 0 for row in rows) > 0
