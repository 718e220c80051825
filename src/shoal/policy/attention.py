"""Replaces the attention of a transformers model, whose forward pass then takes `attending=`.

with attention(model):
    model.base_model(ids, position_ids=positions, use_cache=False, attending=Reading())

Shape suffixes: R rows, S new tokens of each, H key-value heads, K queries that share one, D size of a head, E size of a
value.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from transformers import AttentionInterface

from shoal.policy.reader import reader

NAME = "shoal"


@dataclass(frozen=True)
class Kind:
    """How a layer scores."""

    scale: float
    """What products of queries and keys are multiplied by."""
    window: int | None
    """It reaches back so many tokens, itself among them. None: to the beginning."""
    softcap: float | None
    """Scores are squeezed into plus or minus this. None: they stay."""


class Attending(Protocol):
    """The attention of one pass."""

    def attend(
        self, layer: int, query_RHKSD: torch.Tensor, key_RHSD: torch.Tensor, value_RHSE: torch.Tensor, kind: Kind
    ) -> torch.Tensor:
        """(R, H, K, S, E) for the new tokens."""


@contextmanager
def attention(model: Any) -> Iterator[None]:
    """Replaces the model's own attention to text. Where layers are checkpointed, the backward pass has to be within,
    too."""
    text = reader(model)
    before = text.config._attn_implementation
    text.set_attn_implementation(NAME)
    try:
        yield
    finally:
        text.set_attn_implementation(before)


def _attend(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: None,
    *,
    attending: Attending,
    scaling: float | None = None,
    sliding_window: int | None = None,
    softcap: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """As transformers calls it: query (R, heads, S, D), key (R, H, S, D), value (R, H, S, E); out (R, S, heads, E)."""
    R, heads, S, D = query.shape
    H = key.shape[1]
    kind = Kind(D**-0.5 if scaling is None else scaling, sliding_window, softcap)
    out = attending.attend(module.layer_idx, query.reshape(R, H, heads // H, S, D), key, value, kind)
    return out.reshape(R, heads, S, -1).transpose(1, 2), None


AttentionInterface.register(NAME, _attend)
