"""Strangers' text in a model's own format: as characters and nothing else.

A frame (a chat template's output, a judging prompt) is written with slots; what goes into them is tokenised apart from
it, so that no boundary merges, no template reads it and nothing in it becomes one of the tokenizer's own tokens.

    frame = Frame(tokenizer, [{"role": "user", "content": slots[0] + " = ?"}], slots)
    ids = frame.fill(["2 + 2"])
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from shoal.errors import UserError
from shoal.policy.loading import first_line

SLOTS = ("qzslotaqz", "qzslotbqz", "qzslotcqz")
"""What stands for a text in a frame. Frames are this program's own, so these need not be secret: they are sought in the
frame before anything of others is in it."""
CONTEXT = 32_768
"""Tokens that are taken to fit where a model does not say."""
LEAST = 8
"""Tokens of a text below which there is nothing to judge."""
VISIBLE = "\n\t"
"""Control characters that stay."""


class Inert:
    """Turns text into token ids that a tokenizer has for ordinary text, and only those."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer

    def ids(self, text: str, limit: int | None = None) -> list[int]:
        """The first `limit` tokens of `text`. Its markers are spelt out, letter by letter if need be; whatever would
        still come out as one of the tokenizer's own tokens (by its normaliser) is left out."""
        ids: list[int] = []
        for piece in self._pieces(text):
            found = self.tokenizer(piece, add_special_tokens=False, split_special_tokens=True).input_ids
            ids += [id for id in found if id not in self._own]
            if limit is not None and len(ids) >= limit:
                return ids[:limit]
        return ids

    def defused(self, text: str) -> str:
        """`text` with a space inside whatever spells one of the tokenizer's own tokens, where pieces cannot be had."""
        return " ".join(self._pieces(text))

    @cached_property
    def _own(self) -> frozenset[int]:
        """Ids of special and added tokens. Added characters are no markers: some tokenizers keep white space there."""
        added = self.tokenizer.added_tokens_decoder.items()
        markers = {id for id, token in added if token.special or len(token.content.strip()) > 1}
        return frozenset(markers | set(self.tokenizer.all_special_ids))

    @cached_property
    def _marker(self) -> re.Pattern[str] | None:
        """Where to cut: after the first character of each added token. `split_special_tokens` leaves those whole that
        are not called special (<think>, <tool_call>, ...)."""
        added = [token.content for token in self.tokenizer.added_tokens_decoder.values()]
        added = [content for content in added if len(content) > 1]
        cuts = [f"(?<={re.escape(c[0])})(?={re.escape(c[1:])})" for c in sorted(added)]
        return re.compile("|".join(cuts)) if cuts else None

    def _pieces(self, text: str) -> list[str]:
        return self._marker.split(text) if self._marker else [text]


class Frame:
    """A chat, or plain text, with slots; its own tokens may be special, those of what fills it never are."""

    def __init__(self, inert: Inert, content: str | Sequence[Mapping[str, str]], answer: bool = False) -> None:
        """`content`: a chat for the tokenizer's template, or text. `answer`: the chat ends with its last message rather
        than where the assistant's begins. Raises `UserError` for a template that refuses it."""
        self._inert = inert
        tokenizer = inert.tokenizer
        text = content if isinstance(content, str) else _rendered(tokenizer, content, answer)
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
        """The ids of the whole, with `texts` (of `Inert.ids`) in the places of their slots."""
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


def _rendered(tokenizer: Any, chat: Sequence[Mapping[str, str]], answer: bool) -> str:
    try:
        # Templates that let a model think first are asked not to; others ignore it.
        text: str = tokenizer.apply_chat_template(
            list(chat), add_generation_prompt=not answer, tokenize=False, enable_thinking=False
        )
    except Exception as error:  # templates raise what they like
        raise UserError(f"the chat template refuses a chat as it is needed here: {first_line(error)}") from error
    return text


def _without_end(tokenizer: Any, ids: list[int]) -> list[int]:
    """`ids` without the end-of-sequence token that some tokenizers append."""
    return ids[:-1] if ids and ids[-1] == tokenizer.eos_token_id else ids
