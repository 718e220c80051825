"""How a GGUF file says that texts are cut into words before they become tokens. transformers does not look.

It cuts all of them as GPT-2 does. That gives the same tokens for the models that it knows, and others for a tokenizer
that cuts at digits alone, as guppy's does: `superbpe`, in llama.cpp's words.
"""

from __future__ import annotations

import re
import struct
from pathlib import Path
from typing import Any, Final

from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence

SUPERBPE: Final = b"tokenizer.ggml.pre" + struct.pack("<IQ", 8, len("superbpe")) + b"superbpe"
"""The entry of a file's header: key, type (8 is text), length, text."""
HEADER: Final = 1 << 16
"""Bytes of a file in which the entry stands."""


def cut_as_the_file_says(tokenizer: Any, file: Path) -> None:
    """Has `tokenizer`, which transformers read from a GGUF file, cut texts as llama.cpp does with this file."""
    with file.open("rb") as opened:
        if SUPERBPE not in opened.read(HEADER):
            return
    if any(re.search(r"\d\d", token) for token in tokenizer.get_vocab()):
        return  # llama.cpp then makes words of three digits
    steps = [Digits(individual_digits=True), ByteLevel(add_prefix_space=False, use_regex=False)]
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence(steps)
