"""Reports, recomputed from their own figures by seed: those of `docs/studies`, and one with every kind of contrast.

Recomputed, by what writes reports: every figure of every arm, ratios, contrasts with their tests and sentences, and the
tables of report.md.
"""

from __future__ import annotations

import io
import json
import math
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from rich.console import Console

from shoal.untrusted import json_safe
from shoal_lab.contrasts import verdicts
from shoal_lab.report import contrast_data, figure_data, regime_data, write_report
from shoal_lab.report_text import markdown
from shoal_lab.study import ContrastSpec
from studies import make_study

STUDIES = Path(__file__).parents[3] / "docs" / "studies"
PAIR = {"treated": "4/4", "control": "8/0"}


def recomputed(data: dict[str, Any]) -> dict[str, Any]:
    """All that follows from the figures by seed, in the form of `report.gather`."""
    tables = {name: table(regime) for name, regime in data["regimes"].items()}
    seconds = [
        tables[name].loc[[arm]].reindex(columns=["run/seconds"])["run/seconds"]
        for name, regime in data["regimes"].items()
        for arm in tables[name].index.unique("arm")
        if arm not in regime.get("shared_runs", {})  # a run that two arms share counts once
    ]
    plan = []
    for each in data["contrasts"]:
        spec = {key: each[key] for key in ("treated", "control", "figure", "expect")}
        plan.append((each["name"], each["regime"], ContrastSpec(margin=each["share"], **spec)))
    return {
        "finished": sum(map(len, seconds)),
        "seconds": math.fsum(each.sum() for each in seconds),
        "regimes": {name: of_regime(regime, tables[name]) for name, regime in data["regimes"].items()},
        "contrasts": [contrast_data(verdict) for verdict in verdicts(plan, tables)],
    }


def table(regime: dict[str, Any]) -> pd.DataFrame:
    """As `results.scores`."""
    rows: dict[tuple[str, int], dict[str, float | None]] = {}
    for arm, figures in regime["arms"].items():
        for name, figure in figures.items():
            for seed, value in figure["seeds"].items() if figure else ():
                rows.setdefault((arm, int(seed)), {})[name] = value
    index = pd.MultiIndex.from_tuples(rows, names=["arm", "seed"])
    return pd.DataFrame(list(rows.values()), index=index, dtype=float)


def of_regime(regime: dict[str, Any], table: pd.DataFrame) -> dict[str, Any]:
    arms = {
        arm: {name: figure_data(table.loc[arm][name]) if figure else None for name, figure in figures.items()}
        for arm, figures in regime["arms"].items()
    }
    return regime_data(table) | {"arms": arms}


def differences(reported: Any, found: Any, where: str = "") -> Iterator[str]:
    """What in `reported` is not as in `found`, but for rounding."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from differences((reported or {}).get(key), value, f"{where}, {key}")
    elif isinstance(found, list):
        for place, (one, other) in enumerate(zip_longest(reported or [], found), 1):
            yield from differences(one, other, f"{where} {place}")
    else:
        numbers = all(isinstance(value, int | float) for value in (reported, found))
        if not (math.isclose(reported, found, rel_tol=1e-9, abs_tol=1e-12) if numbers else reported == found):
            yield f"{where}: {reported} is reported, {found} is found"


def check(folder: Path) -> list[str]:
    data = json.loads((folder / "report.json").read_text())
    right, given = (
        [line for line in text.splitlines() if line.startswith("|")]
        for text in (markdown(data), (folder / "report.md").read_text())
    )
    rows = [f"{row} in place of {own}" for own, row in zip_longest(right, given) if own != row]
    return [*differences(data, json.loads(json.dumps(json_safe(recomputed(data))))), *rows]


def test_a_report_follows_from_its_own_figures(tmp_path: Path) -> None:
    folder = make_study(
        tmp_path / "study", seeds=7, nodes=2, rounds=8, regimes=["r"], arms=["8/0", "4/4"],
        contrasts={
            "up": PAIR | {"expect": "above"},
            "wide": PAIR | {"expect": "equal", "margin": 1000},
            "same": PAIR | {"expect": "equal"},
            "none": PAIR | {"figure": "mean/peers/ess"},
        },
        unfinished=[("r", "4/4", 107)],
        changed=["The margin of `wide` was 0.1 before."],
    )  # fmt: skip
    report = write_report(folder, Console(file=io.StringIO()))
    assert check(report.parent) == []
    text = report.read_text()
    assert "## Changed after a first look\n\n- The margin of `wide` was 0.1 before." in text
    data = json.loads(report.with_suffix(".json").read_text())
    data["contrasts"][0]["p"] = 0.001
    report.with_suffix(".json").write_text(json.dumps(data))
    assert any("contrasts 1, p: 0.001 is reported" in line for line in check(report.parent))


@pytest.mark.slow
@pytest.mark.parametrize("report", sorted(STUDIES.glob("*/report.json")), ids=lambda path: path.parent.name)
def test_published_reports_follow_from_their_figures(report: Path) -> None:
    assert check(report.parent) == []
