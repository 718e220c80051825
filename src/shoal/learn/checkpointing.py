"""Gradient checkpointing, where a training pass would keep too much: layers then keep only their inputs for the
backward pass and compute the rest again. That takes less memory, and a third more arithmetic.

    above = checkpoint_above(model, placement, token_budget=1024)    # 1024: no pass is checkpointed; 0: all are
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

COUNTED: Final = 32
"""Tokens in the row that is counted: a multiple of 8, for the attention of GPUs treats other lengths differently."""
KEPT_AT_MOST: Final = 2**31
"""Bytes of activations above which layers are checkpointed."""


def checkpoint_above(model: Any, placement: Placement, token_budget: int, packs: bool = True) -> int:
    """The longest pass, in tokens, that is not checkpointed. It is `token_budget`, or 0 if a single row of so many
    tokens keeps more than a quarter of the device's free memory, or more than 2 GiB. `packs`: see `GRPOLearner`."""
    kept = token_budget * counted_bytes(model, placement, COUNTED, packs) / COUNTED
    return 0 if kept > min(KEPT_AT_MOST, free_bytes(placement.device) / 4) else token_budget


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
