"""Casting weights once changes nothing but the time that it takes."""

from __future__ import annotations

import pytest
import torch
from tiny import ARCHITECTURES, CPU, make_model, weights

from shoal.policy.decoders.base import Sampled, Sampling
from shoal.policy.decoders.own import sample
from shoal.policy.device import Placement
from shoal.policy.precision import cast_bytes, cast_once
from shoal.policy.products import FastLinear

HALF = Placement(CPU.device, torch.bfloat16)
PROMPTS = [[5, 6, 7], [9, 10, 11, 12, 13]]


def drawn(architecture: str, once: bool) -> list[list[Sampled]]:
    model = make_model(architecture)
    before = weights(model)
    with cast_once(model, HALF if once else CPU):
        groups = sample(model, PROMPTS, 2, Sampling(max_completion_length=6), frozenset(), HALF, range(2))
    after = weights(model)
    assert all(torch.equal(after[name], weight) for name, weight in before.items())
    return groups


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_tokens_and_log_probabilities_are_those_of_autocast(architecture: str) -> None:
    assert drawn(architecture, True) == drawn(architecture, False)


def test_layers_are_their_own_again_after_a_failure() -> None:
    model = make_model()
    head, ids = model.lm_head.weight, torch.tensor([PROMPTS[0]])
    expected = model(ids).logits
    casting = cast_once(model, HALF)
    casting.__enter__()
    assert model.lm_head(torch.ones(1, 16)).dtype == torch.bfloat16
    assert not casting.__exit__(RuntimeError, RuntimeError("stop"), None)
    assert model.lm_head.weight is head
    assert torch.equal(model(ids).logits, expected)


def test_the_copies_are_counted() -> None:
    model = make_model()
    assert cast_bytes(model, CPU) == 0
    linear = [m for m in model.modules() if isinstance(m, torch.nn.Linear)]
    assert cast_bytes(model, HALF) == 2 * sum(m.weight.numel() for m in linear)


def test_in_float32_copies_are_made_of_large_matrices_that_onednn_multiplies() -> None:
    layer = FastLinear(400, 300)
    small = FastLinear(40, 30)
    model = torch.nn.Sequential(layer, small)
    assert cast_bytes(model, CPU) == 4 * 400 * 300
    for rows in (1, 64):
        x_RX = torch.randn(rows, 400)
        expected = torch.nn.functional.linear(x_RX, layer.weight, layer.bias)
        with cast_once(model, CPU), torch.no_grad():
            torch.testing.assert_close(layer(x_RX), expected, rtol=1e-5, atol=1e-5)


def test_a_layer_with_a_hook_is_left_alone() -> None:
    model = make_model()
    model.lm_head.forward = hook = lambda hidden: hidden
    with cast_once(model, HALF):
        assert model.lm_head.forward is hook
    assert model.lm_head.forward is hook
