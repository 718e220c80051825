"""The command in docs/extend/commands.md, installed and run as it stands there."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from shoal.cli.main import main

PAGE = (Path(__file__).parents[3] / "docs" / "extend" / "commands.md").read_text()


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The package of the page, installed, and a run."""
    [code] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    [table] = re.findall(r"```toml\n\[project\.entry-points\.\"(.*?)\"\]\n(.*?)```", PAGE, re.DOTALL)
    assert len(code.splitlines()) <= 40
    for name, text in {
        "my_package/__init__.py": "",
        "my_package/best.py": code,
        "my_package-1.0.dist-info/METADATA": "Name: my_package\nVersion: 1.0\n",
        "my_package-1.0.dist-info/entry_points.txt": f"[{table[0]}]\n{table[1]}".replace('"', ""),
        "run/config.toml": "version = 2\n",
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path / "run"


def test_a_command_of_a_package_runs(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["best", str(run)]) == 2
    assert "has no rewards yet" in capsys.readouterr().err
    rows = [{"round": round, "node": "ada", "reward/local": reward} for round, reward in ((1, 0.2), (2, 0.6), (3, 0.4))]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert main(["best", str(run)]) == 0
    assert capsys.readouterr().out == "ada: round 2, 0.600\n"


def test_it_is_in_the_help_and_among_the_nearest(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    assert "show the best round of each node" in capsys.readouterr().out
    assert main(["bset", str(run)]) == 2
    assert "did you mean 'best'?" in capsys.readouterr().err
