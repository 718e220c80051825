"""Reward functions in TRL's contract, in a file that imports quickly."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def ends_in_z(completions: Sequence[Sequence[dict[str, str]]], **_: Any) -> list[float]:
    return [float(turns[0]["content"].endswith("z")) for turns in completions]


def fails(completions: Sequence[Any], **_: Any) -> list[float]:
    raise ZeroDivisionError


def too_few(completions: Sequence[Any], **_: Any) -> list[float]:
    return [0.0]
