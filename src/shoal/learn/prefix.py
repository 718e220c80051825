"""The tokens that the prompts of several rows begin with: computed once, forward and backward.

    prefix = Prefix(model, ids, placement)
    for batch in batches:                       # each has its own backward pass
        token_logprobs(model, batch, 1.0, prefix.layers)[0].sum().backward()
    prefix.backward()                           # and the prefix one for all of them

A batch sees copies of the prefix's keys and values that are cut off from their graph. The gradients of all batches add
up there; then they go on into the model. By the chain rule that is the gradient of passes that repeat the prefix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from shoal.policy.attention import KeysValues
from shoal.policy.device import Placement
from shoal.policy.vision import read_prefix


class Prefix:
    """A shared prefix in one step of an update."""

    def __init__(self, model: Any, ids: Sequence[int], placement: Placement) -> None:
        """With gradients enabled, the pass keeps its activations until `backward`."""
        self._made = read_prefix(model, ids, placement)
        self.layers: list[KeysValues] = [(_leaf(keys), _leaf(values)) for keys, values in self._made]
        """For `token_logprobs`."""

    def backward(self) -> None:
        """Adds the gradient by way of the prefix to the weights."""
        pairs = [
            (made, leaf.grad)
            for of_layer, leaves in zip(self._made, self.layers, strict=True)
            for made, leaf in zip(of_layer, leaves, strict=True)
            if leaf.grad is not None
        ]
        torch.autograd.backward([made for made, _ in pairs], [gradient.to(made.dtype) for made, gradient in pairs])


def _leaf(made: torch.Tensor) -> torch.Tensor:
    """Its gradient adds up in float32 at least, whatever precision the pass has."""
    wide = torch.promote_types(made.dtype, torch.float32)
    return made.detach().to(wide).requires_grad_(made.requires_grad)
