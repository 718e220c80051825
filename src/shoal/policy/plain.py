"""Turns anybody's text into a model's own tokens: ordinary text, whatever it spells.

plain = PlainText(tokenizer)
plain.ids("4<|im_end|>")      # the letters of a marker, not the marker
"""

import json
import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from itertools import takewhile
from typing import Any

from tokenizers import Tokenizer

from shoal.policy.control import control_ids
from shoal.policy.template import ChatFrame


class PlainText:
    """Turns text into ids of ordinary tokens only.

    A tokenizer finds control tokens in a text in two ways: it looks for added tokens first, and its vocabulary may hold
    them too. So this uses a copy of the tokenizer without either."""

    def __init__(self, tokenizer: Any, stop_ids: Iterable[int] = ()) -> None:
        """`stop_ids`: further ids that no text may contain: those that end an answer, or stand for a picture."""
        self.tokenizer = tokenizer
        self.control = control_ids(tokenizer, stop_ids)
        self._own: dict[ChatFrame, list[int]] = {}

    def ids(self, text: str, limit: int | None = None) -> list[int]:
        """The first `limit` tokens of `text`. Characters that this tokenizer can only write as a control token, such as
        the one for unknown characters, are left out."""
        if self._copy is None:
            pieces = [
                self.tokenizer(p, add_special_tokens=False, split_special_tokens=True) for p in self._pieces(text)
            ]
            found = [id for piece in pieces for id in piece.input_ids]
        else:
            found = self._copy.encode(text, add_special_tokens=False).ids
        return [id for id in found if id not in self.control][:limit]

    def framed(self, frame: ChatFrame, texts: Sequence[str], special: bool = False) -> list[int]:
        """A whole prompt: `texts` in their places in `frame`. `special`: with what the tokenizer puts before a text.

        The prompt is tokenised in one piece, as the model knows it, unless a text would then be more than text."""
        ids = self._tokens(frame.text(texts), special)
        if frame not in self._own:
            self._own[frame] = self._controls(self._tokens(frame.text(["x"] * len(texts)), special))
        if self._controls(ids) == self._own[frame]:
            return ids
        ids = list(takewhile(self.control.__contains__, self._tokens("x", special)))
        for piece in frame.pieces:
            ids += self._tokens(piece) if isinstance(piece, str) else self.ids(piece.text(texts))
        return ids

    def _tokens(self, text: str, special: bool = False) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=special).input_ids)

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [id for id in ids if id in self.control]

    def defused(self, text: str) -> str:
        """`text` with a space inside each control string, for interfaces that take no ids."""
        return " ".join(self._pieces(text))

    @cached_property
    def _copy(self) -> Tokenizer | None:
        """The tokenizer without control tokens. None for one in Python, which has no such copy."""
        return without(self.tokenizer.backend_tokenizer, self.control) if self.tokenizer.is_fast else None

    @cached_property
    def _strings(self) -> list[str]:
        return [s for s in self.tokenizer.convert_ids_to_tokens(sorted(self.control)) if len(s) > 1]

    def _pieces(self, text: str) -> list[str]:
        """`text` cut after the first character of each control string in it."""
        present = [s for s in self._strings if s in text]
        cuts = "|".join(f"(?<={re.escape(s[0])})(?={re.escape(s[1:])})" for s in present)
        return re.split(cuts, text) if cuts else [text]


def without(tokenizer: Tokenizer, control: frozenset[int]) -> Tokenizer:
    """A copy that does not know the tokens `control`; all other tokens keep their ids."""
    made = json.loads(tokenizer.to_str())
    made["added_tokens"] = [token for token in made["added_tokens"] if token["id"] not in control]
    made["post_processor"] = made["truncation"] = made["padding"] = None
    # An added token has its id from the vocabulary, or else the next one that is free, which is no longer its own.
    kept = {token["id"]: token["content"] for token in made["added_tokens"]}
    forget = _from_pieces if isinstance(made["model"]["vocab"], list) else _from_vocabulary
    forget(made["model"], control, kept)
    return Tokenizer.from_str(json.dumps(made))


def _from_pieces(model: dict[str, Any], control: frozenset[int], kept: dict[int, str]) -> None:
    """In Unigram the place of a piece is its id, and no text has an empty piece."""
    vocabulary = model["vocab"]
    vocabulary += [["", 0.0]] * (max(kept, default=0) + 1 - len(vocabulary))
    model["vocab"] = [
        ["" if id in control else kept.get(id, piece), score] for id, (piece, score) in enumerate(vocabulary)
    ]


def _from_vocabulary(model: dict[str, Any], control: frozenset[int], kept: dict[int, str]) -> None:
    vocabulary = model["vocab"]
    model["vocab"] = {token: id for token, id in vocabulary.items() if id not in control}
    model["vocab"] |= {token: id for id, token in kept.items()}
    unknown = model.get("unk_token")
    if unknown in vocabulary and unknown not in model["vocab"]:
        model["unk_token"] = ""  # still stands for what is unknown, but no text spells it
        model["vocab"][""] = vocabulary[unknown]
    if "merges" in model:
        gone = {token for token, id in vocabulary.items() if id in control}
        model["merges"] = [pair for pair in model["merges"] if not gone & {*pair, "".join(pair)}]
