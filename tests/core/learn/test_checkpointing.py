"""Gradient checkpointing: when it is used, and that long rows follow from short ones."""

from __future__ import annotations

import pytest
from tiny import CPU, make_model

from shoal.learn import checkpointing
from shoal.learn.checkpointing import counted_bytes, kept_bytes


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
@pytest.mark.parametrize("length", [60, 100])
def test_long_rows_follow_from_short_ones(architecture: str, length: int) -> None:
    model = make_model(architecture)
    assert kept_bytes(model, CPU, length) == pytest.approx(counted_bytes(model, CPU, length), rel=0.1)


def test_auto_checkpoints_where_much_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model("llama")
    kept = kept_bytes(model, CPU, 100)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 2**40)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 100
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", kept - 1)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 0
    monkeypatch.setattr(checkpointing, "KEPT_AT_MOST", 2**40)
    monkeypatch.setattr(checkpointing, "free_bytes", lambda _: 4 * kept - 4)
    assert checkpointing.checkpoint_above(model, CPU, 100) == 0
