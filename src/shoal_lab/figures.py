"""All figures of a report: those of the paper (arXiv 2509.08721), held-out pass@1, gains, and how a task spread.

for picture in pictures(read_results(folder), gains):
    save(picture, folder / "report")
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pandas as pd

from shoal_lab.drawing import Picture
from shoal_lab.figures_gain import draw_gains
from shoal_lab.figures_held_out import held_out_curves
from shoal_lab.figures_paper import against, by_node, moving
from shoal_lab.figures_spread import draw_spread
from shoal_lab.results import Results


def pictures(results: Results, gains: Mapping[str, pd.DataFrame]) -> Iterator[Picture]:
    """All figures, those about all regimes first. `gains`: `figures_gain.points` of each gain of the study."""
    study = results.study
    drawn = [draw_gains({name: (study.gains[name], found) for name, found in gains.items()}), draw_spread(results)]
    for regime, runs in results.runs.items():
        drawn += [draw(regime, runs, study) for draw in (held_out_curves, by_node, moving, against)]
    return (picture for picture in drawn if picture is not None)
