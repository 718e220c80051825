"""How long a text and how many tokens a model reads right."""

import sys
from collections.abc import Iterator
from typing import Any, Final

BY_LENGTH: Final = ("dynamic", "longrope")
"""Scaled positions that are others for a whole text as soon as it is longer than the original limit. What was read
before that would have to be read again."""


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


def _settings(settings: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """All names and plain values, those of parts too."""
    for name, value in settings.items():
        if isinstance(value, dict):
            yield from _settings(value)
        elif isinstance(value, (int, float, str)):
            yield str(name), value
