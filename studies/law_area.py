"""How far held-out pass@1 rises above its start, by the live groups in an update: what `law.toml` expected at first.

    python studies/law_area.py lab/law

`shoal lab law` fits updates to a level instead, which needs arms that all reach one. Where they do not, this says
whether the area above the start grows as a power of the live groups: fitted on the seven arms that the study names
first, tried on the six others. Arms without an area above the start are left out of the fit and told.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

from shoal_lab.measures import held_out
from shoal_lab.results import read_results
from shoal_lab.spread import read_learned

FITTED = ["8/0", "2/0", "16/0", "4/4", "4/4 fill", "2/2 fill", "8 of 32"]


def table(folder: Path) -> pd.DataFrame:
    """A row for each regime and arm: live groups in an update, and the mean of held-out pass@1 less its start."""
    rows = []
    for regime, arms in read_results(folder).runs.items():
        for arm, runs in arms.items():
            curves = [held_out(run.own).mean(axis=1) for run in runs.values()]
            mean = pd.concat(curves, axis=1).mean(axis=1).dropna()
            at = mean.index.to_numpy(dtype=float)
            area = float(np.trapezoid(mean.to_numpy(), at) / (at[-1] - at[0]) - mean.iloc[0])
            live = [
                read_learned(run.learned, run.nodes)["live"].sum() / (run.rounds * len(run.nodes))
                for run in runs.values()
            ]
            rows.append({"regime": regime, "arm": arm, "live": float(np.mean(live)), "area": area})
    return pd.DataFrame(rows)


def main() -> None:
    for regime, arms in table(Path(sys.argv[1])).groupby("regime"):
        rises = arms[arms["area"] > 0]
        fitted = rises[rises["arm"].isin(FITTED)]
        slope, offset = np.polyfit(np.log(fitted["live"]), np.log(fitted["area"]), 1)
        arms["by the law"] = np.exp(offset + slope * np.log(arms["live"]))
        arms["off by"] = arms["area"] / arms["by the law"] - 1
        print(f"{regime}: area above the start = {np.exp(offset):.4f} x live ^ {slope:.2f}, {len(fitted)} arms fitted")
        print(arms.drop(columns="regime").sort_values("live").to_string(index=False, float_format="{:.4f}".format))
        left_out = arms.loc[arms["area"] <= 0, "arm"]
        if len(left_out):
            print("without an area above the start, left out of the fit:", ", ".join(left_out))
        tried = rises[~rises["arm"].isin(FITTED)]
        off = arms.loc[tried.index, "off by"].abs()
        ranks = float(tried["live"].rank().corr(tried["area"].rank()))
        print(f"tried on {len(tried)} arms: median error {off.median():.0%}, largest {off.max():.0%}")
        print(f"Spearman {ranks:.2f}")


if __name__ == "__main__":
    main()
