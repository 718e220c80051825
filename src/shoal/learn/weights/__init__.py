"""The weights of peers' completions by name (`peers.weight`). docs/extend/loss.md shows how to write one."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shoal.config.own_code import make_named
from shoal.learn.weights.base import Weight
from shoal.learn.weights.none import NoWeight
from shoal.learn.weights.topr import TOPR

WEIGHTS: Final[Mapping[str, Callable[..., Weight]]] = {"none": NoWeight, "topr": TOPR}


def make_weight(setting: str) -> Weight:
    """The weight that `peers.weight` names: "topr", or one of your own, "my_losses:Mine". Raises `UserError`."""
    return make_named(setting, WEIGHTS, Weight, "weight")  # type: ignore[type-abstract]
