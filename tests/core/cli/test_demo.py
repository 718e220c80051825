"""`shoal demo` is `shoal run` with fixed settings."""

from __future__ import annotations

import shlex
from pathlib import Path

import pandas as pd
import pytest

from shoal.cli.demo import ASK, SETTINGS, as_command
from shoal.cli.main import main
from shoal.config.load import load_config, make_config, merged
from shoal.config.settings import Config


def test_the_command_that_it_prints_means_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[Config] = []
    monkeypatch.setattr("shoal.cli.session.run_session", lambda config, *_: started.append(config) or 0)
    settings = merged(SETTINGS, {"policy": {"model": ["my models/one"]}, "seed": 3})
    program, *words = shlex.split(as_command(settings))
    assert program == "shoal"
    assert main(words) == 0
    assert started == [make_config(settings, "the demo")]


@pytest.mark.slow
def test_a_short_one_with_guppy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert main(["demo", "--model", "guppy", "--rounds", "1", "--threads", "1", "--out", str(out)]) == 0
    said = capsys.readouterr().out
    for part in (
        "shoal run --rounds 1",
        "before any training (node-1):",
        "held-out questions before and after",
        "shoal watch",
    ):
        assert part in said
    assert f"shoal ask {out} '{ASK}'" in said
    assert load_config(out / "config.toml").tasks.sources[0].name == "larger"  # without --allow-code
    assert set(pd.read_parquet(out / "transcripts.parquet")["round"]) == {0, 1}
