"""What a function reward and its worker say to each other, in the framing of `shoal.sandbox.messages`."""

from __future__ import annotations

from typing import Any

import msgspec

from shoal.rollout import Message, QuestionId


class Start(msgspec.Struct, frozen=True):
    """What a worker is to load."""

    function: str
    conversational: bool
    columns: dict[str, str]
    guarded: bool
    tasks: dict[str, Any]
    """Of `TasksConfig`: the worker makes the questions again, to know their answers."""


class Call(msgspec.Struct, frozen=True):
    """A completion that is to be rewarded."""

    question: QuestionId
    prompt: tuple[Message, ...]
    text: str


class Returned(msgspec.Struct, frozen=True):
    """What the function gave for the calls of one list, or why it gave nothing."""

    values: list[float | None] = []
    failure: str = ""
    detail: str = ""
    """The error's own words, in one line."""
