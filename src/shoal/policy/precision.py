"""Decoding with copies of the weights that are made once, not for every token.

    with cast_once(model, placement), placement.autocast():
        model(ids)

In bfloat16 autocast casts float32 weights in each call; without gradients it remembers none of them. On a processor the
copies also have the layout in which oneDNN reads them (`products.packed_product`), and float32 gets them, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from transformers.pytorch_utils import Conv1D

from shoal.policy.device import Placement
from shoal.policy.products import WORTH_PACKING, FastLinear, packed_product

LINEAR: Final = (torch.nn.Linear, Conv1D)
"""Layers that autocast computes in its precision."""


@contextmanager
def cast_once(model: Any, placement: Placement) -> Iterator[None]:
    """Within, linear layers multiply by copies of their weights in the precision of `placement`. They compute what
    autocast computes; an embedding that shares the output layer's weights keeps them as they are."""
    layers = _copied_layers(model, placement)
    try:
        for layer in layers:
            layer.forward = _product(layer, placement)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)  # that of its class again


def cast_bytes(model: Any, placement: Placement) -> int:
    """What these copies take."""
    numbers: int = sum(layer.weight.numel() for layer in _copied_layers(model, placement))
    return numbers * placement.dtype.itemsize


def _product(layer: Any, placement: Placement) -> Callable[[torch.Tensor], torch.Tensor]:
    weight, bias = (None if t is None else t.detach().to(placement.dtype) for t in (layer.weight, layer.bias))
    assert weight is not None
    if isinstance(layer, Conv1D):
        weight = weight.t()
    if placement.device.type == "cpu":
        return packed_product(weight, bias)
    return partial(torch.nn.functional.linear, weight=weight, bias=bias)


def _copied_layers(model: Any, placement: Placement) -> list[Any]:
    """In another precision those that autocast would cast at each call; in float32 those that oneDNN multiplies, unless
    they are small. A layer whose pass somebody else has replaced (a hook) stays as it is."""
    usual = [m for m in model.modules() if isinstance(m, LINEAR) and "forward" not in vars(m)]
    if placement.dtype == torch.float32:
        return [m for m in usual if isinstance(m, FastLinear) and m.weight.numel() >= WORTH_PACKING]
    return [m for m in usual if m.weight.dtype == torch.float32]
