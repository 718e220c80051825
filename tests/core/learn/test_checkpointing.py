"""Gradient checkpointing: when it is used."""

from __future__ import annotations

import pytest
import torch
from tiny import CPU, make_model

from shoal.learn import checkpointing
from shoal.learn.checkpointing import counted_bytes, pass_lengths
from shoal.policy.device import Placement


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
def test_what_a_pass_keeps_grows_with_its_tokens(architecture: str) -> None:
    model = make_model(architecture)
    assert 1.9 < counted_bytes(model, CPU, 64) / counted_bytes(model, CPU, 32) < 2.5


def test_layers_are_checkpointed_where_much_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    kept = 100 * (counted_bytes(model, CPU, 64) - counted_bytes(model, CPU, 32)) / 32
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 2**40)
    assert pass_lengths(model, CPU, 100) == (100, 100)
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", kept - 1)
    assert pass_lengths(model, CPU, 100) == (100, 0)
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 2**40)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 4 * kept - 4)
    assert pass_lengths(model, CPU, 100) == (100, 0)


def test_a_long_pass_gets_shorter_before_it_is_checkpointed(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    kept = (counted_bytes(model, CPU, 64) - counted_bytes(model, CPU, 32)) / 32
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 5000.5 * kept)
    assert pass_lengths(model, CPU, 16_384) == (5000, 5000)
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 2000 * kept)
    assert pass_lengths(model, CPU, 16_384) == (16_384, 0)


def test_what_is_kept_in_bfloat16_is_no_more_than_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies of weights are kept once, however many tokens a pass has."""
    model = make_model("llama")
    monkeypatch.setattr(
        checkpointing, "KEPT_AT_MOST", 100.5 * (counted_bytes(model, CPU, 64) - counted_bytes(model, CPU, 32)) / 32
    )
    assert pass_lengths(model, Placement(torch.device("cpu"), torch.bfloat16), 100) == (100, 100)
