"""The benchmarks beside TRL: what is timed is the same work, down to the gradient."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("trl")
beside_trl = pytest.importorskip("beside_trl")
pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr(beside_trl, "QUESTIONS", 2)
    monkeypatch.setattr(beside_trl, "G", 2)


def agree(figures: dict[str, Any]) -> None:
    """One step was timed after one to warm up. That prompts, tokens, advantages and gradients agree is asserted by the
    benchmark itself."""
    assert figures["gradient"]["trl"] > 0
    assert all(len(drawn) == 2 and min(drawn) > 0 for drawn in figures["drawn"].values())
    assert figures["clock"]["least"] <= figures["clock"]["ratio"] <= figures["clock"]["most"]


def test_conversations() -> None:
    from turns import beside

    agree(beside(rules=False, repeats=1))


def test_pictures(tmp_path: Path) -> None:
    from pictures import beside

    agree(beside(16, tmp_path, repeats=1))


def test_another_gradient_gives_no_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pictures import beside

    monkeypatch.setattr(beside_trl, "lively", lambda scores: [0.9 * place for place in range(len(scores))])
    with pytest.raises(AssertionError, match="other advantages"):
        beside(16, tmp_path, repeats=1)
