"""The weights of peers' completions by name (`peers.weight`). docs/extend/loss.md shows how to write one."""

from typing import Final

from shoal.config.own_code import make_named
from shoal.learn.weights.base import Weight

WEIGHTS: Final = {"none": "shoal.learn.weights.base:NoWeight", "topr": "shoal.learn.weights.base:TOPR"}
"""Installed packages add theirs by the entry points "shoal.weights"."""


def make_weight(setting: str) -> Weight:
    """The weight that `peers.weight` names. Raises `UserError`.

    make_weight("topr(baseline_shift=0)")
    make_weight("my_losses:Mine")
    """
    return make_named(setting, "weight", Weight, WEIGHTS, "shoal.weights")  # type: ignore[type-abstract]
