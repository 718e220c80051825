"""How long a text and how many tokens a model reads right, and on which texts it shows."""

import sys
from collections.abc import Iterator
from typing import Any, Final

BY_LENGTH: Final = ("dynamic", "longrope")
"""Scaled positions that change for a whole text longer than the original limit: all would be read again."""
WINDOWS: Final = ("sliding_window", "attention_chunk_size")
ENOUGH: Final = 24
"""Tokens of a prompt of which reading the shared ones once pays."""
MOST: Final = 512
"""Tokens of a text that is tried at most, so that it takes no more than some seconds."""


def reads(model: Any) -> int:
    """The most tokens that a model reads right."""
    config = model.config.get_text_config()
    settings = list(_settings(config.to_dict()))
    limits = [limit for name, limit in settings if name.endswith("max_position_embeddings") and limit]
    if any(value in BY_LENGTH for _, value in settings):
        return int(min(limits))
    return int(getattr(config, "max_position_embeddings", None) or sys.maxsize)


def vocabulary(model: Any) -> int:
    """How many tokens it reads and says."""
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    return min(int(end.weight.shape[0]) for end in ends if end is not None)


def telling_length(model: Any) -> int:
    """Tokens of a text that shows whether positions and windows are right: more than a window holds, if that is not
    too many; many where positions are scaled; otherwise enough to share."""
    settings = list(_settings(model.config.get_text_config().to_dict()))
    windows = [value for name, value in settings if name in WINDOWS and isinstance(value, int) and 0 < value < MOST]
    scaled = any(name in ("rope_type", "type") and value != "default" for name, value in settings)
    return min(max(ENOUGH, *(window + ENOUGH for window in windows), MOST if scaled else 0), reads(model) - ENOUGH)


def edge_tokens(lm: Any) -> list[int]:
    """Of a `LanguageModel`: its first and its last added token, and the highest one that it reads and says."""
    highest = vocabulary(lm.model) - 1
    added = sorted({id for id in lm.tokenizer.get_added_vocab().values() if id < highest})
    return [*added[:1], *added[1:][-1:], highest]


def _settings(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All names and plain values, those of parts too."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _settings(value)
        elif isinstance(value, (int, float, str)):
            yield str(name), value
