"""Gradient checkpointing: layers keep only their inputs for the backward pass and compute the rest again. That takes
less memory, and a third more arithmetic."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.learn.activations import count_activations
from shoal.policy.device import Placement
from shoal.policy.free_memory import free_bytes

KEPT_AT_MOST: Final = 2**31
"""Bytes of activations above which layers are checkpointed."""


def worth_checkpointing(model: Any, placement: Placement, token_budget: int) -> bool:
    """Whether a micro-batch of `token_budget` tokens, as a single row, would keep more than a quarter of the device's
    free memory, or more than 2 GiB."""
    kept = count_activations(model, placement).kept(1, token_budget, checkpointed=False)
    return kept > min(KEPT_AT_MOST, free_bytes(placement.device) / 4)


class Checkpointing:
    """Gradient checkpointing of a model's layers, in training passes alone."""

    def __init__(self, model: Any, wanted: bool) -> None:
        """`wanted`: without it `active` changes nothing."""
        self._layers: list[GradientCheckpointingLayer] = []
        if wanted:
            with warnings.catch_warnings():  # transformers 5.2x renames the method; 5.0 only has this name
                warnings.simplefilter("ignore", FutureWarning)
                model.gradient_checkpointing_enable({"use_reentrant": False})
            self._layers = [m for m in model.modules() if isinstance(m, GradientCheckpointingLayer)]

    @contextmanager
    def active(self) -> Iterator[None]:
        """Checkpoints the layers in forward passes within. transformers takes a layer's own `training` for the switch;
        the modules inside the layer stay in evaluation mode."""
        for layer in self._layers:
            layer.training = True
        try:
            yield
        finally:
            for layer in self._layers:
                layer.training = False
