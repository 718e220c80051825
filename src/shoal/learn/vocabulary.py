"""Gradients of the matrices with a row for each token of the vocabulary, added up where they are.

with gradients_in_place(model, placement):
    loss.backward()       # for each micro-batch
# the embedding's and the output layer's gradients are in `weight.grad`, as ever

Autograd makes the whole gradient of such a matrix for each micro-batch, and twice if embedding and output layer share
it. For 262,144 tokens and 640 numbers each that is 0.7 GB each time. Getting that memory from the system takes longer
than the products.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch

from shoal.policy.device import Placement
from shoal.policy.products import FastLinear, product


@contextmanager
def gradients_in_place(model: Any, placement: Placement) -> Iterator[None]:
    """Backward passes within this context add these gradients up in place, on a processor. Other layers (with a bias,
    of another class, in mixed precision) are left alone."""
    weights = in_place_weights(model, placement)
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    grows = any(head.weight is weight for weight in weights)
    finds = any(embedding.weight is weight for weight in weights)
    if grows:
        head.forward = partial(_GrowingProduct.apply, head)
    if finds:
        embedding.sparse = True
    try:
        yield
    finally:
        if grows:
            del head.forward
        if finds:
            embedding.sparse = False
            if embedding.weight.grad is not None and embedding.weight.grad.is_sparse:  # no output layer shares it
                embedding.weight.grad = embedding.weight.grad.to_dense()


def in_place_weights(model: Any, placement: Placement) -> list[torch.nn.Parameter]:
    """The matrices whose gradients `gradients_in_place` adds up in place."""
    head, embedding = model.get_output_embeddings(), model.get_input_embeddings()
    found = []
    if type(head) in (torch.nn.Linear, FastLinear) and head.bias is None:
        found.append(head.weight)
    if isinstance(embedding, torch.nn.Embedding) and not embedding.scale_grad_by_freq:
        found.append(embedding.weight)
    able = placement.device.type == "cpu" and placement.dtype == torch.float32
    return [weight for weight in found if able and weight.requires_grad]


class _GrowingProduct(torch.autograd.Function):
    """x weight^T of a linear layer without a bias. The backward pass adds to `weight.grad`."""

    @staticmethod
    def forward(ctx: Any, head: torch.nn.Linear, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        ctx.head = head
        return type(head).forward(head, x)

    @staticmethod
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[None, torch.Tensor]:
        (x,) = ctx.saved_tensors
        weight, dy = ctx.head.weight, gradients[0]
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
        weight.grad.addmm_(dy.flatten(0, -2).t(), x.flatten(0, -2))
        return None, product(ctx.head, dy, weight.t())
