"""`studies/keep_archive.py`: what it keeps of a study's nodes is an archive in which everything holds."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from shoal_extras.archive.contents import Stats, signed_rows
from shoal_extras.archive.verify import start_of, verify

SCRIPT = Path(__file__).parents[3] / "studies/keep_archive.py"
STUDY = """
title = "Which answers are kept?"
about = "Two nodes."
expect = ["All."]
seeds = [1]

[base]
rounds = 2
round = { nodes = 2, local = 2, peers = 2 }
evaluation = { every = 0 }
policy = { model = ["guppy"], num_generations = 4 }
[arms.live]
"""


@pytest.mark.slow
def test_what_a_study_keeps_verifies_and_names_its_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    keep = runpy.run_path(str(SCRIPT))["keep"]
    keep(Path("study.toml"), "live", 1, tmp_path / "kept")
    found = verify(tmp_path / "kept", start_of(None))
    assert (found.rollouts, found.not_installed, dict(found.wrong)) == (8, 0, {})
    stats = Stats()
    for row, said in signed_rows(tmp_path / "kept"):
        stats.add(row, said)
        assert row.rewards
    assert {model for _, model in stats.scored} == {"guppy"}
