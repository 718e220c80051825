"""Casting weights once changes nothing but the time that it takes."""

from __future__ import annotations

import pytest
import torch
from tiny import ARCHITECTURES, CPU, make_model, weights

from shoal.policy.decode import Sampled, sample
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.precision import cast_bytes, cast_once

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


def test_weights_come_back_after_a_failure() -> None:
    model = make_model()
    head, casting = model.lm_head.weight, cast_once(model, HALF)
    casting.__enter__()
    assert model.lm_head.weight.dtype == torch.bfloat16
    assert model.get_input_embeddings().weight.dtype == torch.float32
    assert not casting.__exit__(RuntimeError, RuntimeError("stop"), None)
    assert model.lm_head.weight is head


def test_the_copies_are_counted() -> None:
    model = make_model()
    assert cast_bytes(model, CPU) == 0
    expected = cast_bytes(model, HALF)
    with cast_once(model, HALF):
        assert expected == sum(m.weight.nbytes for m in model.modules() if isinstance(m, torch.nn.Linear))
