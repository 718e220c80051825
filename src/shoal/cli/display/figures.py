"""The figures of a node or of their mean, as a display shows them: short, and empty where there is none."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeGuard

Row = Mapping[str, Any]
"""The metrics of one node and round."""


def cells(row: Row, held_out: Sequence[float], arrow: str) -> dict[str, str]:
    """The figures of a row by their columns. `held_out`: the first and, if there are several, the last."""

    def count(key: str) -> str:
        value = row.get(key)
        return f"{value:.{0 if value >= 99.95 else 1}f}".removesuffix(".0") if is_number(value) else ""

    reward = row.get("reward/local")
    tokens = sum(row.get(f"tokens/{what}") or 0 for what in ("generated", "trained"))
    seconds = sum(row.get(f"seconds/{what}") or 0 for what in ("generate", "score", "learn"))
    return {
        "reward": f"{reward:.2f}" if is_number(reward) else "",
        "held-out": arrow.join(f"{100 * value:.1f}" for value in held_out) + ("%" if held_out else ""),
        "live": count("rollouts/live_local"),
        "given": count("rollouts/shared"),
        "taken": "/".join(filter(None, (count("rollouts/sampled"), count("rollouts/wanted")))),
        "pool": count("rollouts/pool"),
        "tok/s": short(tokens / seconds) if seconds and row.get("tokens/generated") is not None else "",
    }


def spark(values: Sequence[float], highest: float) -> str:
    """`values` as bars, from the lowest at 0 to the full height at `highest`."""
    bars = "▁▂▃▄▅▆▇█"
    scale = (len(bars) - 1) / highest if highest > 0 else 0.0
    return "".join(bars[round(max(0.0, value) * scale)] for value in values)


def short(number: float) -> str:
    """A positive number in at most four characters and a unit: 870, 8.7k, 87k, 8.7M."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.1f}{unit}" if unit and number < 9.95 else f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}G"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)
