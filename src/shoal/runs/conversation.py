"""A conversation as a column of a table has it: a list of [turn, observation] in JSON."""

from __future__ import annotations

import json
from itertools import zip_longest

import msgspec

from shoal.rollout import Completion


def conversation(completion: Completion) -> str | None:
    """The turns of a completion, each with what the environment answered. None where no environment did."""
    if not completion.observations:
        return None
    pairs = zip_longest(completion.turns, completion.observations, fillvalue="")
    return json.dumps([list(pair) for pair in pairs], ensure_ascii=False)


def turns_of(text: str | None) -> list[tuple[str, str]] | None:
    """The turns that `conversation` wrote. None for no text, and for what is none."""
    try:
        return None if text is None else _conversations.decode(text)
    except (msgspec.MsgspecError, UnicodeEncodeError, RecursionError):  # a stranger may have written it
        return None


_conversations = msgspec.json.Decoder(list[tuple[str, str]])
