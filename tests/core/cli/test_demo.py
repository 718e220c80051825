"""`shoal demo` is `shoal run` with fixed settings."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from shoal.cli.main import main
from shoal.config.load import load_config


@pytest.mark.slow
def test_a_short_one_with_guppy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["demo", "--model", "guppy", "--rounds", "1", "--threads", "1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for part in (
        f"`shoal run --config {out / 'config.toml'}` does the same",
        "questions that it never practised",
        "shoal watch",
    ):
        assert part in said
    assert f"shoal ask {out}" in said
    assert load_config(out / "config.toml").tasks.sources[0].name == "larger"  # without --allow-code
    assert set(pd.read_parquet(out / "transcripts.parquet")["round"]) == {0, 1}
