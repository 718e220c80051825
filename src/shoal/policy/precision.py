"""Decoding in bfloat16: weights are cast once, not again for every token.

    with cast_once(model, placement), placement.autocast():
        model(ids)

Autocast casts float32 weights in each call; without gradients it remembers none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import torch
from transformers.pytorch_utils import Conv1D

from shoal.policy.device import Placement

LINEAR: Final = (torch.nn.Linear, Conv1D)
"""Layers that autocast computes in its precision."""


@contextmanager
def cast_once(model: Any, placement: Placement) -> Iterator[None]:
    """Within, linear layers have copies of their weights in the precision of `placement`, so that products are those of
    autocast, to the last bit. An embedding that shares the output layer's weights keeps them as they are."""
    layers = _cast_layers(model, placement)
    weights = [layer.weight for layer in layers]
    try:
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight = torch.nn.Parameter(weight.detach().to(placement.dtype), requires_grad=False)
        yield
    finally:
        for layer, weight in zip(layers, weights, strict=True):
            layer.weight = weight


def cast_bytes(model: Any, placement: Placement) -> int:
    """What these copies take."""
    numbers: int = sum(layer.weight.numel() for layer in _cast_layers(model, placement))
    return numbers * placement.dtype.itemsize


def _cast_layers(model: Any, placement: Placement) -> list[Any]:
    """Those that autocast would cast at each call."""
    if placement.dtype == torch.float32:
        return []
    return [m for m in model.modules() if isinstance(m, LINEAR) and m.weight.dtype == torch.float32]
