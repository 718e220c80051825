"""Reward functions as people write them for TRL: each takes chats and texts."""

from __future__ import annotations

import zlib
from typing import Any


def _size(said: Any, most: int = 33) -> int:
    """A number below `most` that depends on the text alone."""
    text = said if isinstance(said, str) else said[0]["content"]
    return zlib.crc32(text.encode()) % most


def wide(completions: list[Any], **_: Any) -> list[float]:
    return [_size(said) / 10 for said in completions]


def negative(completions: list[Any], **_: Any) -> list[float]:
    return [-5.0 - _size(said) for said in completions]


def huge(completions: list[Any], **_: Any) -> list[float]:
    return [1e15 * _size(said) for said in completions]


def sometimes(completions: list[Any], **_: Any) -> list[float | None]:
    return [None if _size(said) % 2 else _size(said) / 10 for said in completions]


def sometimes_nan(completions: list[Any], **_: Any) -> list[float]:
    return [float("nan") if _size(said) % 3 else 1.0 for said in completions]


def never(completions: list[Any], **_: Any) -> list[None]:
    return [None for _ in completions]


def by_column(completions: list[Any], answer: list[str], *, question: list[str], **_: Any) -> list[float]:
    return [
        _size(said) + len(gold) + len(asked) / 2
        for said, gold, asked in zip(completions, answer, question, strict=True)
    ]


def one_short(completions: list[Any], **_: Any) -> list[float]:
    return [1.0] * (len(completions) - 1)


def broken(completions: list[Any], **_: Any) -> list[float]:
    raise KeyError("answer")


def texts(completions: list[Any], **_: Any) -> list[str]:
    return ["1" for _ in completions]
