"""A model's sizes and a run's work, for tests of estimates."""

from __future__ import annotations

from typing import Any


def models(nodes: int = 4) -> tuple[Any, Any]:
    """A hundred million parameters, with figures of the order of SmolLM2's."""
    from shoal.learn.activations import Activations, Growth
    from shoal.learn.memory import Sizes, Work

    activations = Activations(Growth(0, 1.4e6, 120), Growth(0, 48e3, 4), Growth(0, 4600, 0), Growth(0, 69e3, 0))
    sizes = Sizes(10**8, 10**8, 28 * 10**6, 49152, 3648, 46080, activations, adapted=300_000)
    return sizes, Work(nodes, "adamw", False, 1000, [(1, 1000, 0, 500), (4, 250, 0, 400)], [(4, 1200, 8)], 256, 2**30)
