"""Gradient checkpointing: layers keep only their inputs for the backward pass and compute the rest again. That takes
less memory, and a third more arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.learn.activations import count_activations
from shoal.policy.device import Placement, free_bytes

KEPT_AT_MOST: Final = 2**31
"""Bytes of activations above which layers are checkpointed."""


def checkpoint_above(model: Any, placement: Placement, token_budget: int) -> int:
    """The longest pass, in tokens, that is not checkpointed. It is `token_budget`, or 0 if a single row of so many
    tokens keeps more than a quarter of the device's free memory, or more than 2 GiB."""
    kept = count_activations(model, placement).kept(1, token_budget, above=token_budget)
    return 0 if kept > min(KEPT_AT_MOST, free_bytes(placement.device) / 4) else token_budget


class Checkpointing:
    """Gradient checkpointing of a model's layers, in long training passes alone."""

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
