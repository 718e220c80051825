"""Mixtures of experts: log-probabilities and gradients are those of transformers."""

from __future__ import annotations

import pytest
import torch
from test_logprobs import backward, packed, separate
from tiny import EXPERTS, InDouble, assert_same, in_double, make_model

EXACT = 1e-9


@pytest.mark.parametrize("budget", [1000, 30, 8], ids=["padded", "some", "one sequence each"])
@pytest.mark.parametrize("architecture", EXPERTS)
def test_packed_rows_are_exactly_the_model_s_own_forward_pass(architecture: str, budget: int) -> None:
    """Which experts a token takes depends on no other row, and on no padding."""
    model = in_double(make_model(architecture))
    with InDouble():
        logps, _, _ = packed(model, budget)
        expected = separate(model)
        torch.testing.assert_close(logps, expected, rtol=EXACT, atol=EXACT)
        assert_same(backward(model, logps), backward(model, expected), EXACT)
