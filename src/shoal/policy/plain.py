"""Turns anybody's text into a model's own tokens: ordinary text, whatever it spells.

plain = PlainText(tokenizer)
plain.ids("4<|im_end|>")      # the letters of a marker, not the marker
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from shoal.errors import UserError, in_brief
from shoal.policy.control import control_ids
from shoal.policy.template import ChatFrame


def ids_of(tokenizer: Any, text: str) -> list[int]:
    """The tokens of `text`, which may be control tokens. Raises `UserError` where a pattern of the tokenizer's own
    searches for longer than its library allows, which then panics."""
    try:
        return list(tokenizer(text, add_special_tokens=False).input_ids)
    except BaseException as error:  # a panic is no Exception
        if type(error).__name__ != "PanicException":
            raise
        raise UserError(f"the tokenizer cannot read a text: {in_brief(error)}; its files are damaged") from None


class PlainText:
    """Turns text into ids of ordinary tokens only: a text is cut in each string that spells a control token, and its
    pieces are tokenised one by one."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int] = ()) -> None:
        """`stop_ids`: further ids that no text may contain: those that end an answer, or stand for a picture."""
        self.tokenizer = tokenizer
        self.control = control_ids(tokenizer, stop_ids)
        self._own: dict[ChatFrame, list[int]] = {}

    def ids(self, text: str, limit: int | None = None) -> list[int]:
        """The first `limit` tokens of `text`. Characters that this tokenizer can only write as a control token, such as
        the one for unknown characters, are left out."""
        found = [id for piece in self._pieces(text) for id in self._tokens(piece)]
        return [id for id in found if id not in self.control][:limit]

    def framed(self, frame: ChatFrame, texts: Sequence[str]) -> list[int]:
        """A whole prompt: `texts` in their places in `frame`.

        The prompt is tokenised in one piece, as the model knows it, unless a text would then be more than text."""
        ids = self._tokens(frame.text(texts))
        if frame not in self._own:
            self._own[frame] = self._controls(self._tokens(frame.text(["x"] * len(texts))))
        if self._controls(ids) == self._own[frame]:
            return ids
        ids = []
        for piece in frame.pieces:
            ids += self._tokens(piece) if isinstance(piece, str) else self.ids(piece.text(texts))
        return ids

    def _tokens(self, text: str) -> list[int]:
        return ids_of(self.tokenizer, text)

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [id for id in ids if id in self.control]

    def defused(self, text: str) -> str:
        """`text` with a space inside each control string, for interfaces that take no ids."""
        return " ".join(self._pieces(text))

    @cached_property
    def _strings(self) -> list[str]:
        return [s for s in self.tokenizer.convert_ids_to_tokens(sorted(self.control)) if len(s) > 1]

    def _pieces(self, text: str) -> list[str]:
        """`text` cut after the first character of each control string in it."""
        present = [s for s in self._strings if s in text]
        cuts = "|".join(f"(?<={re.escape(s[0])})(?={re.escape(s[1:])})" for s in present)
        return re.split(cuts, text) if cuts else [text]
