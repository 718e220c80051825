"""What the proposers of a run set: how many of their problems hold, and how alike these are.

proposal_measures(Path("lab/proposer/runs/main/proposer/seed-1"), ["node-3"])      # {"proposals/valid": 0.9, ...}
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from shoal.runs.tables import ROLLOUTS, read_table
from shoal_extras.programs.proposals import PROPOSE, own_program


def proposal_measures(folder: Path, proposers: Sequence[str], part: float = 0.2) -> dict[str, float]:
    """Figures of a finished run. What was not measured is absent.

    - `proposals/valid_first`, `proposals/valid`: the share of valid proposals, in the first and the last `part` of
      the rounds.
    - `proposals/commonest`: of those in the last part, the share of the commonest `form`.
    """
    said = read_table(folder, ROLLOUTS, ["round", "completion", "reward"], node=proposers, task=[PROPOSE])
    if said.empty:
        return {}
    last = said["round"].max()
    early, late = said[said["round"] <= part * last], said[said["round"] > (1 - part) * last]
    figures = {"proposals/valid_first": (early["reward"] >= 1).mean(), "proposals/valid": (late["reward"] >= 1).mean()}
    forms = late["completion"][late["reward"] >= 1].map(form)
    if len(forms):
        figures["proposals/commonest"] = forms.value_counts(normalize=True).max()
    return {name: float(value) for name, value in figures.items() if not pd.isna(value)}


def form(problem: str) -> str:
    """The program of a problem without its numbers and words: `n + 3` and `n + 4` have one form."""
    return re.sub(r"'[^']*'|\d+", "_", own_program(problem))
