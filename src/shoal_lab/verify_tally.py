"""What `verify` counts, and checks that several parts of a report share.

tally = Tally()
check_ends(span, [treated, control], difference, "the contrast", tally)        # of the interval, by scipy
tally.differ        # ["the contrast, interval: 0.1 to 0.2 is reported, 0.3 to 0.4 is found"]
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from shoal_lab.verify_read import Regime, Span
from shoal_lab.verify_scipy import TOLERANCE, Array, close, ends_agree, iqm, resampled, share

ABOVE_BLIND: Final = ("held_out/area_per_update", "held_out/area_per_flop", "held_out/final")

Values = Mapping[str, float | None]
"""A figure by seed."""


@dataclass
class Tally:
    """What was checked of one kind."""

    agree: int = 0
    differ: list[str] = field(default_factory=list)
    unchecked: int = 0

    def check(self, where: str, reported: Any, found: Any, right: bool | None = None) -> None:
        """Counts two values; `right`: whether they agree, if that is not to be equal, or close."""
        if right is None:
            numbers = isinstance(reported, int | float) and isinstance(found, int | float)
            right = close(reported, found) if numbers else reported == found
        if right:
            self.agree += 1
        else:
            self.differ.append(f"{where}: {_shown(reported)} is reported, {_shown(found)} is found")


Tallies = defaultdict[str, Tally]
"""By kind."""


def check_relative(
    given: Span | None, regime: Regime, arms: tuple[str, str], name: str, where: str, tally: Tally
) -> None:
    """A difference as a share of the control, or that there is none."""
    treated, control = _above_blind(regime, arms, name)
    seeds = [seed for seed in treated if treated[seed] is not None and control.get(seed) is not None]
    above, below = (np.array([side[seed] for seed in seeds], dtype=float) for side in (treated, control))
    if not seeds or iqm(below) <= 0:
        tally.check(where, given, None)
    elif given is None:  # right if the upper end has no bound
        endless = float(np.isinf(resampled([above, below], share)).mean())
        tally.check(where, None, f"a share without bound in {endless:.1%} of resamples", endless >= 0.025 - TOLERANCE)
    else:
        tally.check(where, given.value, float(share(above, below)))
        check_ends(given, [above, below], share, where, tally)


def check_ends(span: Span, samples: list[Array], statistic: Callable[..., Any], where: str, tally: Tally) -> None:
    drawn = resampled(samples, statistic)
    low, high = np.quantile(drawn, [0.025, 0.975], method="nearest")
    right = ends_agree(span.low, span.high, drawn)
    tally.check(f"{where}, interval", f"{span.low:.6g} to {span.high:.6g}", f"{low:.6g} to {high:.6g}", right)


def seeds_of(regime: Regime, arm: str) -> list[str]:
    return list(next((each.seeds for each in regime.arms[arm].values() if each), {}))


def figure_of(regime: Regime, arm: str, name: str) -> Values:
    """A figure by seed; None in every seed where the report has none."""
    figure = regime.arms.get(arm, {}).get(name)
    if figure:
        return figure.seeds
    return dict.fromkeys(seeds_of(regime, arm)) if arm in regime.arms else {}


def _above_blind(regime: Regime, arms: tuple[str, str], name: str) -> list[Values]:
    """A figure of two arms by seed; held-out pass@1 less what answers get that ignore the question, where all seeds of
    both know it."""
    values, blind = ([figure_of(regime, arm, figure) for arm in arms] for figure in (name, "held_out/blind"))
    if name not in ABOVE_BLIND or any(None in each.values() for each in blind):
        return values
    return [
        {seed: None if value is None else value - (base.get(seed) or 0.0) for seed, value in each.items()}
        for each, base in zip(values, blind, strict=True)
    ]


def values_of(values: Values) -> Array:
    return np.array([value for value in values.values() if value is not None], dtype=float)


def _shown(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
