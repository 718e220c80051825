"""Matrix products by oneDNN, for processors on which torch's default library is slow, and copies of weights.

On x86-64 torch multiplies float32 matrices by Intel's MKL. On AMD's processors MKL reaches a quarter to a half of the
speed of oneDNN, which torch ships too and uses for bfloat16 (docs/reference/performance.md has the figures).

Decoding multiplies by copies of the weights that are made once, not for every token:

    with cast_once(model, placement), placement.autocast():
        model(ids)

Without gradients autocast remembers no cast weights. On a processor copies have the layout that oneDNN reads.
"""

import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch
from transformers.pytorch_utils import Conv1D

from shoal.policy.device import Placement

SMALL = 1_500_000
"""Multiplications in a product below which oneDNN's start costs more than it saves."""

WORTH_PACKING = 100_000
"""Numbers of a matrix from which on `packed_product` saves more than the packing takes."""
LINEAR: Final = (torch.nn.Linear, Conv1D)
"""Layers that autocast computes in its precision."""


def use_fast_products(model: torch.nn.Module, device: torch.device) -> None:
    """Makes the linear layers of `model` multiply by oneDNN where that is faster. Their weights stay in place."""
    if device.type != "cpu" or not is_amd() or not torch.backends.mkldnn.is_available():
        return
    for module in model.modules():
        if type(module) is torch.nn.Linear:
            module.__class__ = FastLinear


def is_amd() -> bool:
    """Whether this is an AMD processor."""
    cpuinfo = Path("/proc/cpuinfo")
    return "AuthenticAMD" in (platform.processor() + (cpuinfo.read_text() if cpuinfo.exists() else ""))


class FastLinear(torch.nn.Linear):
    """A linear layer that multiplies float32 matrices by oneDNN."""

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        weight = self.weight
        small = input.numel() * len(weight) < SMALL
        if small or not input.dtype == weight.dtype == torch.float32 or torch.is_autocast_enabled("cpu"):
            return super().forward(input)
        out: torch.Tensor = _Linear.apply(input, weight, self.bias)
        return out


def product(layer: torch.nn.Linear, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """x weight^T, multiplied as `layer` does."""
    fast = isinstance(layer, FastLinear) and x.dtype == torch.float32
    return _product(x, weight) if fast else torch.nn.functional.linear(x, weight)


class _Linear(torch.autograd.Function):
    """`torch.nn.functional.linear` and its gradient, as three products."""

    @staticmethod
    def forward(ctx: Any, input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        ctx.save_for_backward(input, weight)
        ctx.biased = bias is not None
        return _product(input, weight, bias)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        input, weight = ctx.saved_tensors
        of_input, of_weight, of_bias = ctx.needs_input_grad
        dy, x = gradients[0].flatten(0, -2), input.flatten(0, -2)
        return (
            _product(dy, weight.t()).view_as(input) if of_input else None,
            _product(dy.t(), x.t()) if of_weight else None,
            dy.sum(0) if of_bias and ctx.biased else None,
        )


def _product(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
    """x weight^T + bias."""
    out: torch.Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def packed_product(weight: torch.Tensor, bias: torch.Tensor | None) -> Callable[[torch.Tensor], torch.Tensor]:
    """x -> x weight^T + bias without gradients, by oneDNN with a copy of `weight` in its own layout. That takes an
    eighth off a product with 64 rows, and a third or more off one with 8."""
    packed = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())

    def product(x: torch.Tensor) -> torch.Tensor:
        if weight.dtype == torch.float32 and x.numel() * len(weight) < SMALL:
            return torch.nn.functional.linear(x, weight, bias)
        return _product(x.to(weight.dtype), packed, bias)

    return product


@contextmanager
def cast_once(model: Any, placement: Placement, kept: dict[Any, torch.Tensor] | None = None) -> Iterator[None]:
    """Within, linear layers multiply by copies of their weights in the precision of `placement`. They compute what
    autocast computes; an embedding that shares the output layer's weights keeps them as they are. `kept`: the copies of
    weights and biases, which stay where they are from one call to the next."""
    layers = _copied_layers(model, placement)
    last: list[Any] = [None, None]
    try:
        for layer in layers:
            layer.forward = _copied(layer, placement, kept, last)
        yield
    finally:
        for layer in layers:
            layer.__dict__.pop("forward", None)  # that of its class again


def _copied(
    layer: Any, placement: Placement, kept: dict[Any, torch.Tensor] | None, last: list[Any]
) -> Callable[[torch.Tensor], torch.Tensor]:
    """`last`: the input of the last such layer, and that in the precision of the copies."""
    weight, bias = (None if t is None else t.detach().to(placement.dtype) for t in (layer.weight, layer.bias))
    if kept is not None:
        weight, bias = (
            None if of is None or new is None else kept.setdefault(of, new).copy_(new)
            for of, new in ((layer.weight, weight), (layer.bias, bias))
        )
    assert weight is not None
    if isinstance(layer, Conv1D):
        weight = weight.t()
    # oneDNN packs bfloat16 weights on processors with AVX-512 or AVX-NE-CONVERT.
    if placement.device.type == "cpu" and (
        weight.dtype == torch.float32 or torch.ops.mkldnn._is_mkldnn_bf16_supported()
    ):
        return packed_product(weight, bias)
    copy = weight

    def product(x: torch.Tensor) -> torch.Tensor:
        if last[0] is not x:  # queries, keys and values have the same input
            last[:] = x, x.to(copy.dtype)
        return torch.nn.functional.linear(last[1], copy, bias)

    return product


def _copied_layers(model: Any, placement: Placement) -> list[Any]:
    """In another precision those that autocast would cast at each call; in float32 those that oneDNN multiplies, unless
    they are small. A layer whose pass somebody else has replaced (a hook) stays as it is."""
    usual = [m for m in model.modules() if isinstance(m, LINEAR) and "forward" not in vars(m)]
    if placement.dtype == torch.float32:
        return [m for m in usual if isinstance(m, FastLinear) and m.weight.numel() >= WORTH_PACKING]
    return [m for m in usual if m.weight.dtype == torch.float32]
