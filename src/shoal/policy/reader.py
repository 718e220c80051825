"""The part of a model that reads a text."""

from __future__ import annotations

from typing import Any


def reader(model: Any) -> Any:
    """The model without its output layer; of a vision-language model, the part that reads text and picture features."""
    config = model.config
    return model.base_model if config.get_text_config() is config else model.get_decoder()
