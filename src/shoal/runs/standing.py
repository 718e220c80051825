"""How a run stands: the numbers of which the window, the terminal, a run's last lines and the model card
show the same. A curve of several nodes is their mean in each round, then smoothed, and only then thinned.

    begun, now = before_and_now([[0.07, 0.31, 0.57]])     # right on held-out questions, over the nodes
    begun, now = measured([[0.07, 0.31, 0.57]], 64)       # the same with intervals: now.value, now.low, now.high
    recent([0.2, 0.4, 0.9])                               # local reward: the mean of the last `RECENT` rounds
    over_nodes([0.5, None, 0.7])                          # the mean over the nodes that have a number
"""

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from shoal.evaluation.pass_at_k import Estimate, wilson

RIGHT: Final = "eval/pass@1"
REWARD: Final = "reward/local"
RECENT: Final = 10
"""Rounds over which local reward is averaged, where it is one number and where it is a curve."""


def before_and_now(nodes: Iterable[Sequence[float]]) -> list[float]:
    """The mean first and the mean last value over the nodes that have both; the first alone where none has."""
    known = [values for values in nodes if len(values)]
    twice = [values for values in known if len(values) > 1]
    return [fmean(values[end] for values in twice or known) for end in ((0, -1) if twice else (0,)) if known]


def measured(nodes: Iterable[Sequence[float]], questions: int) -> list[Estimate]:
    """`before_and_now`, each with its 95 % interval. `questions`: held-out ones of a node; all nodes have the same."""
    shares = (min(1.0, max(0.0, share)) for share in before_and_now(nodes))
    return [Estimate(share, *wilson(share, max(1, questions))) for share in shares]


def recent(values: Sequence[float]) -> float | None:
    """The mean of the last `RECENT` values; None where there is none."""
    return float(fmean(values[-RECENT:])) if len(values) else None


def over_nodes(values: Iterable[float | None]) -> float | None:
    """The mean of the numbers among `values`; None where there is none."""
    known = [value for value in values if value is not None]
    return fmean(known) if known else None
