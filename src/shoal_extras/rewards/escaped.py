"""Puts strangers' text into a model's prompt as characters and nothing else.

A frame (a chat template's output, or a prompt) has slots. Their content is tokenised apart from the frame, so that no
boundary merges, no template reads it and nothing in it becomes one of the tokenizer's special tokens.

    frame = Frame(tokenizer, {"user": SLOTS[0] + " = ?"}, "my-model")
    ids = frame.fill([PlainText(tokenizer).ids("2 + 2")])
"""

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.policy.template import chat_template
from shoal.untrusted import piles_marks

SLOTS = ("qzslotaqz", "qzslotbqz", "qzslotcqz")
"""Placeholders of texts in a frame. They need not be secret: they are looked up before strangers' text is filled in."""
CONTEXT = 32_768
"""Tokens that a model reads if its configuration does not say."""
LEAST = 8
"""Tokens of a text below which it cannot be judged."""
VISIBLE = "\n\t"
"""Control characters that are kept."""


class Frame:
    """A chat or a plain text with slots. Its own tokens may be special; those of the texts that fill it never are."""

    def __init__(self, tokenizer: Any, content: str | Mapping[str, str], name: str) -> None:
        """`content`: what each role says, for the chat template of the model `name`; or plain text. If the user speaks
        last, the beginning of the assistant's turn follows. Raises `UserError` for a template that refuses it."""
        text = content if isinstance(content, str) else _rendered(tokenizer, content, name)
        slots = "|".join(SLOTS)
        self._order = [SLOTS.index(slot) for slot in re.findall(slots, text)]
        pieces = re.split(slots, text)
        self._pieces = [list(tokenizer(piece, add_special_tokens=False).input_ids) for piece in pieces]
        if isinstance(content, str):  # with what the tokenizer puts before a text, but not behind it
            first = list(tokenizer(pieces[0]).input_ids)
            self._pieces[0] = first[:-1] if first and first[-1] == tokenizer.eos_token_id else first

    def __len__(self) -> int:
        """Tokens of the frame alone."""
        return sum(map(len, self._pieces))

    def fill(self, texts: Sequence[Sequence[int]]) -> list[int]:
        """The ids of the frame with `texts` (by `PlainText.ids`) in their slots."""
        ids = list(self._pieces[0])
        for slot, piece in zip(self._order, self._pieces[1:], strict=True):
            ids += texts[slot]
            ids += piece
        return ids


def plain(text: str, limit: int) -> str:
    """The first `limit` visible characters of `text`, composed (NFC): without zero-width characters, changes of
    direction and the tag characters that spell hidden text. Empty for letters under piles of marks, which take long to
    compose."""
    shown = "".join(c for c in text[: 4 * limit] if c in VISIBLE or unicodedata.category(c)[0] != "C")
    return "" if piles_marks(shown) else unicodedata.normalize("NFC", shown)[:limit]


def _rendered(tokenizer: Any, chat: Mapping[str, str], name: str) -> str:
    return chat_template(tokenizer, name).frame(tuple(chat), thinking=False).text(list(chat.values()))
