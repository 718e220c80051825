"""Gradient checkpointing: when it is used."""

from __future__ import annotations

import pytest
from tiny import CPU, make_model

from shoal.learn import checkpointing
from shoal.learn.checkpointing import counted_bytes


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
def test_what_a_pass_keeps_grows_with_its_tokens(architecture: str) -> None:
    model = make_model(architecture)
    assert 1.9 < counted_bytes(model, CPU, 64) / counted_bytes(model, CPU, 32) < 2.5


def test_auto_checkpoints_where_much_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    kept = 100 * counted_bytes(model, CPU, checkpointing.COUNTED) / checkpointing.COUNTED
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 2**40)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 100
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", kept - 1)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 0
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 2**40)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 4 * kept - 4)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 0
