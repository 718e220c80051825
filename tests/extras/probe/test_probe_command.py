"""`shoal probe`, with the model that the package brings."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from shoal.cli.main import main

Capture = pytest.CaptureFixture[str]
SHORT = ["probe", "guppy", "--only", "chain_sum", "--seconds", "60", "--num-generations", "4"]


@pytest.mark.slow
def test_what_is_recommended_is_a_configuration_that_runs(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    file = tmp_path / "my.toml"
    assert main([*SHORT, "--write", str(file)]) == 0
    out = capsys.readouterr().out
    assert "last-number" in out
    assert f"shoal run --config {file}" in " ".join(out.split())
    written = tomllib.loads(file.read_text())
    assert written["policy"]["model"] == ["guppy"]
    assert [task["name"] for task in written["tasks"]["sources"]] == ["chain_sum"]
    assert main(["eval", "guppy", "--config", str(file), "--questions", "2", "--json"]) == 0
    assert main([*SHORT, "--write", str(file)]) == 2  # never over another
    assert main(SHORT) == 0
    assert "as found before" in capsys.readouterr().out


def test_one_answer_a_question_is_no_group(capsys: Capture) -> None:
    assert main([*SHORT[:-1], "1"]) == 2
    assert "--num-generations 8" in capsys.readouterr().err
