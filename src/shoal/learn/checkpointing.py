"""Gradient checkpointing, where a training pass would keep too much: layers then keep only their inputs for the
backward pass and compute the rest again, with a third more arithmetic.

    budget, above = pass_lengths(model, placement, most=1024)    # above 1024: no pass is checkpointed; 0: all are
    with Checkpointing(model, above).of(2048): ...                   # a pass of 2048 tokens
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import torch
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.learn.batch import Row, Trained, tensors
from shoal.learn.logprobs import trained_hidden
from shoal.policy.device import Placement, free_bytes

COUNTED: Final = 32  # tokens in a row that is counted: GPUs attend otherwise to lengths that are no multiples of 8
KEPT_AT_MOST: Final = 2**31  # bytes of activations, on a processor
LONG: Final = 2048  # tokens of a pass that keep a GPU busy


def pass_lengths(model: Any, placement: Placement, most: int, packs: bool = True) -> tuple[int, int]:
    """The most tokens in a pass, and in one that is not checkpointed: `most`, or what an eighth of a GPU's free memory
    has room for (of a processor's a quarter, at most 2 GiB). Where that is below `LONG`, a pass of `most` tokens is
    checkpointed. `packs`: see `GRPOLearner`."""
    shorter, longer = (counted_bytes(model, placement, many * COUNTED, packs) for many in (1, 2))
    free = free_bytes(placement.device)
    room = free / 8 if placement.device.type == "cuda" else min(KEPT_AT_MOST, free / 4)
    fits = min(most, int(room * COUNTED / (longer - shorter)))  # copies of weights are in both
    return (fits, fits) if fits >= min(most, LONG) else (most, 0)


def counted_bytes(model: Any, placement: Placement, length: int, packs: bool = True) -> int:
    """What a pass over one row of `length` tokens, half of them the prompt, keeps beside the weights."""
    seen = {tensor.untyped_storage().data_ptr() for tensor in [*model.parameters(), *model.buffers()]}
    kept = 0

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        nonlocal kept
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in seen:
            seen.add(storage.data_ptr())
            kept += storage.nbytes()
        return tensor.detach()  # keeps the storage alive, so that no later one gets its address

    row = Row([1] * (length // 2), (Trained([1] * (length - length // 2 + 1), 1.0, 1.0, 0),))
    saved = torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor)
    with torch.enable_grad(), placement.autocast(), saved:
        batch = tensors([row], placement.device)
        made = trained_hidden(model, batch) if packs else model(batch.input_ids_RS, use_cache=False).logits
    del made
    return kept


class Checkpointing:
    """Gradient checkpointing in long training passes only."""

    def __init__(self, model: Any, above: int) -> None:
        """`above`: only passes of more tokens are checkpointed."""
        self.above = above
        self._layers: list[Any] = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]
        for layer in self._layers:  # the model's own method also makes embeddings ask for gradients
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = partial(checkpoint, use_reentrant=False)

    @contextmanager
    def of(self, tokens: int) -> Iterator[None]:
        """For a forward pass of so many tokens. transformers takes a layer's own `training` for the switch; the modules
        inside the layer stay in evaluation mode."""
        for layer in self._layers:
            layer.training = tokens > self.above
        try:
            yield
        finally:
            for layer in self._layers:
                layer.training = False
