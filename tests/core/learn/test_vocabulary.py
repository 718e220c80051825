"""Gradients of embedding and output layer that are added up in place are those of autograd."""

from __future__ import annotations

import pytest
import torch
from tiny import CPU, make_model

from shoal.learn.vocabulary import gradients_in_place, in_place_weights
from shoal.policy.device import Placement


@pytest.mark.parametrize("architecture", ["llama", "gemma3", "qwen2"])
@pytest.mark.parametrize("tied", [True, False])
def test_gradients_of_several_passes_are_those_of_autograd(architecture: str, tied: bool) -> None:
    model = make_model(architecture)
    if not tied:
        head = model.get_output_embeddings()
        head.weight = torch.nn.Parameter(head.weight.detach().clone())
    weights = list(model.parameters())
    batches = [torch.tensor([[5, 9, 5, 7]]), torch.tensor([[9, 3], [4, 4]])]

    def gradients() -> list[torch.Tensor]:
        model.zero_grad(set_to_none=True)
        for ids in batches:
            model(ids).logits.log_softmax(-1)[..., 6].sum().backward()
        return [weight.grad for weight in weights if weight.grad is not None]

    usual = gradients()
    with gradients_in_place(model, CPU):
        assert model.get_input_embeddings().sparse
        ours = gradients()
    assert not model.get_input_embeddings().sparse
    assert "forward" not in vars(model.get_output_embeddings())
    ours = [weight.grad for weight in weights if weight.grad is not None]  # dense again
    assert len(usual) == len(ours) == len(weights)
    for one, other in zip(usual, ours, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-5, atol=1e-6)


def test_matrices_are_left_alone_where_it_is_not_known_to_be_right() -> None:
    model = make_model()
    assert in_place_weights(model, CPU)
    assert not in_place_weights(model, Placement(torch.device("cpu"), torch.bfloat16))
    assert not in_place_weights(model, Placement(torch.device("meta"), torch.float32))
    head = model.get_output_embeddings()
    head.bias = torch.nn.Parameter(torch.zeros(len(head.weight)))
    model.get_input_embeddings().weight.requires_grad_(False)
    assert not [weight for weight in in_place_weights(model, CPU) if weight is not head.weight]
