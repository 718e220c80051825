"""Control tokens: the tokens of a tokenizer that are no text, and the strings that spell them.

    control = ControlText(control_strings(tokenizer))
    control.found("4<|im_end|>")     # True

Every special or added token is one (`<|im_end|>`, `</think>`, `<tool_call>`, tokens of vision or of reserve), whatever
the tokenizer says of it. All of this comes from the tokenizer and its chat template. No list of markers is kept here.
"""

import re
from collections.abc import Iterable
from typing import Any

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from shoal.policy.template import STANDARD, chat_template

SHORTEST = 3
"""Characters. What is shorter may be ordinary prose."""
_BRACKETED = re.compile(r"<+[^<>\s]+>+|\[+[^\[\]\s]+\]+")
"""What a chat template writes around turns where its tokenizer has no token for it: [INST], <<SYS>>, <|user|>."""


def control_ids(tokenizer: Any, stop_ids: Iterable[int] = ()) -> frozenset[int]:
    """Ids of all control tokens, with `stop_ids`, which end an answer. White space and single printable characters that
    were added to a vocabulary are ordinary text."""
    added = {id for id, token in tokenizer.added_tokens_decoder.items() if token.special or not _ordinary(token)}
    return frozenset(added | set(tokenizer.all_special_ids) | set(stop_ids))


def control_strings(tokenizer: Any) -> frozenset[str]:
    """Strings that no policy with this tokenizer writes and no prose contains: special tokens, and what the chat
    template puts between turns. Added tokens that are not special, such as `<think>`, may occur in honest answers.

    Raises `UserError` for a chat template that does not end."""
    added = tokenizer.added_tokens_decoder.values()
    special = {token.content for token in added if token.special} | {str(t) for t in tokenizer.all_special_tokens}
    turns: set[str] = set()
    template = chat_template(tokenizer, tokenizer.name_or_path)
    for roles in filter(template.takes, STANDARD):
        turns.update(_BRACKETED.findall(template.frame(roles).text([""] * len(roles))))
    written = {token.content for token in added if not token.special}
    return frozenset(string for string in special | (turns - written) if _is_marker(string))


class ControlText:
    """Finds control strings in a text, in time that grows with the text alone. Case counts, as in tokenizers."""

    def __init__(self, strings: Iterable[str]) -> None:
        """Without `strings`, for a node without a tokenizer, it finds nothing."""
        self.strings = frozenset(strings)
        self._finder = Tokenizer(BPE())  # without a vocabulary it sees these alone
        self._finder.add_special_tokens([AddedToken(string, normalized=False) for string in sorted(self.strings)])

    def found(self, text: str) -> bool:
        """Whether `text` spells any of them."""
        return bool(self._finder.encode(text).ids)


def _ordinary(token: Any) -> bool:
    """White space (which sentencepiece writes as ▁), or one printable character."""
    text = token.content.replace("▁", " ").strip()
    return len(text) <= 1 and text.isprintable()


def _is_marker(string: str) -> bool:
    """Whether `string` can never be ordinary prose: it has brackets or the like around a name."""
    ends = string[:1] + string[-1:]
    return (
        len(string) >= SHORTEST and not any(c.isalnum() or c.isspace() for c in ends) and any(map(str.isalnum, string))
    )
