"""A tokenizer as llama.cpp has it: tokens with their types, merges or scores, and how a text is cut into words.

    add_vocabulary(writer, tokenizer, rows=49152, name="smollm2")        # of the model "gpt2", cut as "smollm"

llama.cpp has two kinds of byte-pair encoding. One is over bytes ("gpt2"): it cuts a text into words by one of its
built-in patterns first. The other is SentencePiece's ("llama"): spaces are ▁, and scores order the merges. What a
tokenizer.json says beyond that is refused, since the file would load and read texts differently.
"""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

import gguf

from shoal.errors import UserError

Type = gguf.TokenType
SPACE: Final = "▁"
DIGITS: Final = r"\p{N}"
"""A step that makes each digit a word."""
GPT2: Final = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_WORDS: Final = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|"
_REST: Final = r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2: Final = _WORDS + r"\p{N}" + _REST
LLAMA3: Final = _WORDS + r"\p{N}{1,3}" + _REST
PATTERNS: Final[Mapping[tuple[str, ...], str]] = {
    (GPT2,): "gpt-2",
    (DIGITS, GPT2): "smollm",
    (QWEN2,): "qwen2",
    (LLAMA3,): "smaug-bpe",
    (DIGITS,): "superbpe",
}
"""llama.cpp's names of patterns, by the steps of a tokenizer. Each step cuts the words of the one before."""
WHOLE_WORDS: Final = {"smaug-bpe": "llama-bpe"}
"""The names of patterns with which words of the vocabulary are tokens, whatever the merges say."""
PREPENDS: Final = ('"Prepend"', '"prepend_scheme": "first"', '"prepend_scheme": "always"')
"""What says in tokenizer.json that a text begins as if a space were before it."""
UNREACHED: Final = -1e6
"""The score of a token that no merge makes."""


def add_vocabulary(writer: gguf.GGUFWriter, tokenizer: Any, rows: int, name: str) -> None:
    """Adds the tokenizer of a model with `rows` rows of embeddings: rows without a token get one that is never used.

    Raises `UserError` if llama.cpp would read texts differently."""
    if not tokenizer.is_fast:
        raise UserError(f"the tokenizer of '{name}' has no tokenizer.json, which GGUF is made from")
    content = json.loads(tokenizer.backend_tokenizer.to_str())
    model = content["model"]
    if model.get("type") != "BPE":
        raise UserError(f"the tokenizer of '{name}' is of the kind {model.get('type')}: only BPE is written as GGUF")
    pairs = [tuple(pair.split(" ", 1)) if isinstance(pair, str) else tuple(pair) for pair in model["merges"]]
    cuts = json.dumps([content.get("normalizer"), content.get("pre_tokenizer")], ensure_ascii=False)
    pieces = SPACE in cuts and bool(model.get("byte_fallback"))
    pre = "default" if pieces else _pre(content, name)
    tokens, types = _by_id(content, rows, name, pieces)
    writer.add_tokenizer_model("llama" if pieces else "gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    if not pieces:
        writer.add_add_space_prefix(False)
        writer.add_token_merges([" ".join(pair) for pair in pairs])
        return
    writer.add_add_space_prefix(any(mark in cuts for mark in PREPENDS))
    ranks: dict[str, int] = {}
    for rank, pair in enumerate(pairs):
        ranks.setdefault("".join(pair), rank)
    # a merge's product is found by its spelling in tokenizer.json, where user-defined tokens have ▁
    writer.add_token_scores([-1.0 - ranks[t] if t in ranks else 0.0 if len(t) == 1 else UNREACHED for t in tokens])


def _pre(content: Mapping[str, Any], name: str) -> str:
    """llama.cpp's name of the patterns that cut a text into words."""
    changes = str((content.get("normalizer") or {"type": "NFC"})["type"])
    if changes != "NFC":
        raise UserError(f"the tokenizer of '{name}' is not written as GGUF: it changes texts ({changes[:40]})")
    steps = tuple(_steps(content["pre_tokenizer"] or {"type": "none"}, name))
    pre = PATTERNS.get(steps)
    if pre is None or (pre == "superbpe" and any(re.search(r"\d\d", token) for token in content["model"]["vocab"])):
        raise UserError(
            f"the tokenizer of '{name}' cuts texts in a way that llama.cpp does not know ({' then '.join(steps)[:120]})"
        )
    if not content["model"].get("ignore_merges"):
        return pre
    if pre not in WHOLE_WORDS:
        raise UserError(f"the tokenizer of '{name}' is not written as GGUF: it ignores merges")
    return WHOLE_WORDS[pre]


def _steps(pre: Mapping[str, Any], name: str) -> Iterator[str]:
    """The patterns of a pre-tokenizer, one after another. Raises `UserError`."""
    match pre:
        case {"type": "Sequence", "pretokenizers": list(parts)}:
            for part in parts:
                yield from _steps(part, name)
        case {"type": "Digits", "individual_digits": True}:
            yield DIGITS
        case {"type": "Split", "pattern": {"Regex": str(regex)}, "behavior": "Isolated", "invert": False} | {
            "type": "Split",
            "pattern": {"Regex": str(regex)},
            "behavior": "Removed",
            "invert": True,
        }:
            yield regex
        case {"type": "ByteLevel", "add_prefix_space": False}:
            if pre.get("use_regex", True):
                yield GPT2
        case _:
            raise UserError(
                f"the tokenizer of '{name}' cuts texts in a way that llama.cpp does not know (its step is "
                f"{str(pre.get('type'))[:40]})"
            )


def _by_id(content: Mapping[str, Any], rows: int, name: str, pieces: bool) -> tuple[list[str], list[Type]]:
    """Tokens and types by id, for each row. `pieces`: they are SentencePiece's. Raises `UserError`."""
    byte = re.compile("<0x[0-9A-F]{2}>" if pieces else "(?!)")
    vocab = content["model"]["vocab"]
    found = {id: (token, Type.BYTE if byte.fullmatch(token) else Type.NORMAL) for token, id in vocab.items()}
    for added in content["added_tokens"]:
        text, kind = added["content"], Type.CONTROL if added["special"] else Type.USER_DEFINED
        if pieces and text == content["model"].get("unk_token"):
            kind = Type.UNKNOWN
        if pieces and not added["special"]:
            text = text.replace(SPACE, " ")
        found[added["id"]] = text, kind
    if max(found, default=0) >= rows:
        raise UserError(f"the tokenizer of '{name}' has {max(found) + 1} tokens, and the model {rows}: they do not fit")
    each = [found.get(id, (f"[PAD{id}]", Type.UNUSED)) for id in range(rows)]
    tokens = [token for token, _ in each]
    if len(set(tokens)) < rows or not all(tokens):
        raise UserError(
            f"the tokenizer of '{name}' is not written as GGUF: two of its tokens are written alike, or one is empty"
        )
    return tokens, [kind for _, kind in each]
