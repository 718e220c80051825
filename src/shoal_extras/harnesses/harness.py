"""Measured by others: a model on the tasks of EleutherAI's harness (lm-eval) or of Inspect.

    [figure, *_] = measure("lm-eval", policy, Asked(["arc_easy"], limit=100))
    print(figure.task, figure.metric, figure.value, figure.stderr)

Tasks are code of other people, and whoever names one runs it. The harnesses are extras, imported when they are used.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from shoal.errors import UserError
from shoal.protocols import Policy

HARNESSES: Final = {
    "lm-eval": ("lm_eval", "shoal_extras.harnesses.lm_eval"),
    "inspect": ("inspect_ai", "shoal_extras.harnesses.inspect"),
}
"""The package of each, and what speaks to it here. A harness's own name for its package is the same."""


@dataclass(frozen=True)
class Figure:
    """What a harness found in one task by one metric."""

    task: str
    metric: str
    samples: int | None
    """Questions that it is a figure of, where the harness says so."""
    value: float
    stderr: float | None
    """Its standard error, as the harness computes it."""


@dataclass(frozen=True)
class Asked:
    """What a model is asked."""

    tasks: Sequence[str]
    """As the harness names them."""
    include_path: Path | None = None
    """A folder with tasks of lm-eval in YAML."""
    limit: int | None = None
    """Questions of each task; None: all."""
    examples: int | None = None
    """Worked examples before each question; None: as the task says."""
    seed: int | None = None
    """None: the harness's own."""


def check_harness(harness: str) -> None:
    """Raises `UserError` if it is not installed."""
    package, _ = HARNESSES[harness]
    if find_spec(package) is None:
        raise UserError(f"{harness} is not installed: `pip install 'shoal[{harness}]'`")


def measure(harness: str, policy: Policy, asked: Asked) -> list[Figure]:
    """The figures of a model on the tasks of `harness`. Raises `UserError`."""
    check_harness(harness)
    found: list[Figure] = importlib.import_module(HARNESSES[harness][1]).measure(policy, asked)
    return found
