"""Strangers' text in a model's own format: as characters and nothing else.

A frame (a chat template's output, a judging prompt) is written with slots; what goes into them is tokenised apart from
it, so that no boundary merges, no template reads it and nothing in it becomes one of the tokenizer's own tokens.

    frame = Frame(tokenizer, {"user": SLOTS[0] + " = ?"}, "my-model")
    ids = frame.fill([PlainText(tokenizer).ids("2 + 2")])
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.policy.template import chat_template

SLOTS = ("qzslotaqz", "qzslotbqz", "qzslotcqz")
"""What stands for a text in a frame. Frames are this program's own, so these need not be secret: they are sought in the
frame before anything of others is in it."""
CONTEXT = 32_768
"""Tokens that are taken to fit where a model does not say."""
LEAST = 8
"""Tokens of a text below which there is nothing to judge."""
VISIBLE = "\n\t"
"""Control characters that stay."""


class Frame:
    """A chat, or plain text, with slots; its own tokens may be special, those of what fills it never are."""

    def __init__(self, tokenizer: Any, content: str | Mapping[str, str], name: str) -> None:
        """`content`: what each role says, for the chat template of the model `name`, or text. A chat that ends with the
        user goes on to where the assistant's turn begins. Raises `UserError` for a template that refuses it."""
        text = content if isinstance(content, str) else _rendered(tokenizer, content, name)
        slots = "|".join(SLOTS)
        self._order = [SLOTS.index(slot) for slot in re.findall(slots, text)]
        pieces = re.split(slots, text)
        if not isinstance(content, str):
            first, *rest = [list(tokenizer(piece, add_special_tokens=False).input_ids) for piece in pieces]
        else:
            first = _without_end(tokenizer, list(tokenizer(pieces[0]).input_ids))
            rest = [list(tokenizer(piece, add_special_tokens=False).input_ids) for piece in pieces[1:]]
        self._pieces = [first, *rest]

    def __len__(self) -> int:
        """Tokens of the frame alone."""
        return sum(map(len, self._pieces))

    def fill(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """The ids of the whole, with `texts` (of `PlainText.ids`) in the places of their slots."""
        ids = list(self._pieces[0])
        for slot, piece in zip(self._order, self._pieces[1:], strict=True):
            ids += texts[slot]
            ids += piece
        return ids


def plain(text: str, limit: int) -> str:
    """The first `limit` characters of `text` that a person would see: composed (NFC), without what is not displayed,
    such as zero-width characters, changes of direction and the tag characters that spell hidden text."""
    shown = (c for c in text[: 4 * limit] if c in VISIBLE or unicodedata.category(c)[0] != "C")
    return unicodedata.normalize("NFC", "".join(shown))[:limit]


def _rendered(tokenizer: Any, chat: Mapping[str, str], name: str) -> str:
    template = chat_template(tokenizer, name)
    assert template is not None
    return template.frame(tuple(chat), thinking=False).text(list(chat.values()))


def _without_end(tokenizer: Any, ids: list[int]) -> list[int]:
    """`ids` without the end-of-sequence token that some tokenizers append."""
    return ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids
