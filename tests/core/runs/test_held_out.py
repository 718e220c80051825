"""A run that is stopped while it asks held-out questions: it ends at once, and its resumption makes up for it."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from support.figures import figures

from shoal.config.settings import Config
from shoal.runs.session import execute
from shoal.runs.watcher import Watcher

CONFIG = Config.model_validate(
    {
        "rounds": 2,
        "threads": 1,
        "tasks": {"only": ["chain_sum"]},
        "policy": {"device": "cpu", "num_generations": 4, "max_completion_length": 8},
        "learner": {"learning_rate": 1e-3},
        "round": {"nodes": 2, "local": 2, "peers": 1, "workers": 0},
        "evaluation": {"every": 1, "questions": 2, "samples": 2},
    }
)


class Stopper(Watcher):
    """Stops the run as soon as it asks in round `round`."""

    def __init__(self, round: int) -> None:
        self.stop = threading.Event()
        self.asked: list[str] = []
        self._round = round
        self._next = 0

    def update(self, rows: Any, round: int) -> None:
        self._next = round + 1

    def status(self, text: str) -> None:
        if text.startswith("asking held-out questions"):
            self.asked.append(text)
            if self._next == self._round:
                self.stop.set()


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("run") / "whole"
    assert execute(CONFIG, folder).finished
    return figures(folder)


@pytest.mark.slow
@pytest.mark.parametrize("round", [0, 1, 2])
def test_it_ends_at_once_and_gets_the_same_figures(whole: list[dict[str, Any]], tmp_path: Path, round: int) -> None:
    watcher = Stopper(round)
    done = execute(CONFIG, tmp_path / "run", watch=lambda names, rows: watcher, stop=watcher.stop)
    assert done.round == round
    assert watcher.asked[0] == "asking held-out questions (0 of 4)"
    stopped = [row for row in figures(tmp_path / "run") if row["round"] == round]
    assert not any("eval/pass@1" in row for row in stopped)
    assert len(stopped) == (2 if round else 0)
    assert execute(CONFIG, resume=tmp_path / "run").finished
    resumed = figures(tmp_path / "run")
    assert [dict(sorted(row.items())) for row in resumed] == [dict(sorted(row.items())) for row in whole]
