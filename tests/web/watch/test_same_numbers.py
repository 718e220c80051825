"""The window's tile, the terminal, the last lines and the card show the same number for the same thing."""

from __future__ import annotations

import io
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console
from watched import metric, write_run

pytest.importorskip("duckdb")

from shoal.cli.session import print_result
from shoal.config.settings import Config
from shoal.display.figures import Progress
from shoal.runs.folder import read_metrics
from shoal.runs.source import Source
from shoal_extras.export.card import Origin, card_of
from shoal_extras.export.story import story_of
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.source import CurveQuery

ROUNDS, RIGHT = 37, {0: 0.0703, 20: 0.31, 37: 0.5731}


def run_of(folder: Path, nodes: dict[str, float]) -> Path:
    """A node's rewards jump from round to round, so that a window of another width gives another number."""
    rows = [
        metric(round, node, **{"reward/local": (round * 7 % 11) / 11 * scale})
        | ({"eval/pass@1": RIGHT[round] * scale, "eval/questions": 128} if round in RIGHT else {})
        for round in range(ROUNDS + 1)
        for node, scale in nodes.items()
    ]
    return write_run(folder, rows)


@pytest.mark.parametrize("nodes", [{"node-1": 1.0}, {"node-1": 1.0, "node-2": 0.5, "node-3": 0.25}])
def test_four_places_show_the_same(tmp_path: Path, nodes: dict[str, float]) -> None:
    run = run_of(tmp_path / "run", nodes)
    rows = read_metrics(run)
    with closing(FolderSource(run, "run")) as source:
        tile = source.summary()["standing"]
        ends = {
            metric: source.curve(CurveQuery(metric=metric, by="mean", smooth=smooth, points=1000))["series"][0][
                "points"
            ]
            for metric, smooth in (("reward/local", 10), ("eval/pass@1", 0))
        }
        lines = source.curve(CurveQuery(metric="reward/local", smooth=10, points=10))["series"]
        mean = source.curve(CurveQuery(metric="reward/local", by="mean", smooth=10, points=10))["series"][0]
    before, now, reward = *tile["right"], tile["reward"]

    terminal = Progress(ROUNDS, list(nodes), rows)
    assert terminal.mean_held_out() == pytest.approx([before, now])
    assert terminal.mean_row()["reward/local"] == pytest.approx(reward)

    said = io.StringIO()
    outcome: Any = SimpleNamespace(
        folder=run, finished=True, round=ROUNDS, seconds=1.0, device="cpu", warnings=[], trouble=""
    )
    print_result(Console(file=said, width=200), outcome, Config(), "run", quiet=True)
    intervals = [f"{low:.1%} to {high:.1%}" for low, high in tile["intervals"]]
    assert f"  before training  {before:6.1%}   (95% interval: {intervals[0]})\n" in said.getvalue()
    assert f"  after round 37   {now:6.1%}   (95% interval: {intervals[1]})\n" in said.getvalue()
    assert f"-> {reward:.3f} (first and last 10 rounds)" in said.getvalue()

    assert [ends["eval/pass@1"][0][1], ends["eval/pass@1"][-1][1]] == pytest.approx([before, now], rel=1e-4)
    assert ends["reward/local"][-1][1] == pytest.approx(reward, rel=1e-4)

    for place, (_, value) in enumerate(mean["points"]):  # however few points are drawn, a mean lies among its lines
        values = [line["points"][place][1] for line in lines]
        assert min(values) - 1e-4 <= value <= max(values) + 1e-4

    if len(nodes) == 1:  # a card is of one model
        story = story_of(Source(str(run), run, "node-1", ROUNDS))
        card = card_of(story, Origin(), "mine", "transformers")
        for share, (low, high) in zip((before, now), tile["intervals"], strict=True):
            assert f"{share:.3f} [{low:.3f}, {high:.3f}]" in card
