"""Products by oneDNN: the same numbers as torch's own, forward and backward. Casting weights once changes nothing."""

from __future__ import annotations

import copy

import pytest
import torch
from tiny import ARCHITECTURES, CPU, make_model, weights

from shoal.policy import products
from shoal.policy.decoders.base import Sampled, Sampling
from shoal.policy.decoders.own import sample
from shoal.policy.device import Placement
from shoal.policy.products import FastLinear, cast_once, use_fast_products


@pytest.fixture(autouse=True)
def amd(monkeypatch: pytest.MonkeyPatch) -> None:
    if not torch.backends.mkldnn.is_available():
        pytest.skip("torch was built without oneDNN")
    monkeypatch.setattr(products, "is_amd", lambda: True)


def pair(bias: bool = True, inputs: int = 96, outputs: int = 160) -> tuple[torch.nn.Linear, torch.nn.Linear]:
    torch.manual_seed(0)
    plain = torch.nn.Linear(inputs, outputs, bias)
    fast = copy.deepcopy(plain)
    use_fast_products(fast, CPU.device)
    assert type(fast) is FastLinear
    return plain, fast


@pytest.mark.parametrize("shape", [(4, 96), (128, 96), (2, 7, 96), (3, 50, 96)], ids=str)
@pytest.mark.parametrize("bias", [True, False])
def test_it_is_the_same_function_with_the_same_gradients(shape: tuple[int, ...], bias: bool) -> None:
    plain, fast = pair(bias)
    x = torch.randn(shape)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    fast(ours).square().sum().backward()
    plain(theirs).square().sum().backward()
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    for own, other in zip(fast.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(own.grad, other.grad, rtol=1e-4, atol=1e-3)


def test_frozen_weights_get_no_gradient() -> None:
    _, fast = pair()
    fast.requires_grad_(False)
    x = torch.randn(200, 96, requires_grad=True)
    fast(x).sum().backward()
    assert fast.weight.grad is None
    assert x.grad is not None


def test_transposed_and_strided_inputs() -> None:
    plain, fast = pair(False)
    x = torch.randn(96, 300).t()
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-5, atol=1e-5)
    x = torch.randn(10, 40, 192)[..., ::2]
    torch.testing.assert_close(fast(x), plain(x), rtol=1e-5, atol=1e-5)


def test_what_it_is_not_for_is_left_alone() -> None:
    plain, fast = pair()
    assert torch.equal(fast.double()(torch.ones(300, 96).double()), plain.double()(torch.ones(300, 96).double()))
    own = type("Own", (torch.nn.Linear,), {})(4, 4)
    use_fast_products(own, CPU.device)
    assert type(own) is not FastLinear
    elsewhere = torch.nn.Linear(4, 4)
    use_fast_products(elsewhere, torch.device("meta"))
    assert type(elsewhere) is torch.nn.Linear


def test_other_processors_keep_torch_s_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "is_amd", lambda: False)
    layer = torch.nn.Linear(4, 4)
    use_fast_products(layer, CPU.device)
    assert type(layer) is torch.nn.Linear


def test_it_stays_an_ordinary_layer() -> None:
    plain, fast = pair()
    assert isinstance(fast, torch.nn.Linear)
    assert fast.state_dict().keys() == plain.state_dict().keys()
    assert type(copy.deepcopy(fast)) is FastLinear


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


def test_in_float32_copies_are_made_of_large_matrices_that_onednn_multiplies() -> None:
    layer = FastLinear(400, 300)
    small = FastLinear(40, 30)
    model = torch.nn.Sequential(layer, small)
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
