"""The estimate of a run's memory: long rows follow from short ones, and parts add up."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from memory_estimates import models


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
@pytest.mark.parametrize(("rows", "length"), [(1, 100), (3, 70)])
def test_long_rows_follow_from_short_ones(architecture: str, rows: int, length: int) -> None:
    from tiny import CPU, make_model

    from shoal.learn.activations import count_activations, count_once, trial_batch

    model = make_model(architecture)
    counted = count_once(model, CPU, trial_batch(rows, length, CPU.device))
    whole = sum(kept for kept, _ in counted.values())
    assert count_activations(model, CPU).kept(rows, length, above=rows * length) == pytest.approx(whole, rel=0.03)


def test_checkpointing_keeps_less() -> None:
    from tiny import CPU, make_model

    from shoal.learn.activations import count_activations

    counted = count_activations(make_model("llama"), CPU)
    assert counted.kept(1, 100, above=99) < 0.8 * counted.kept(1, 100, above=100)


def test_auto_checkpoints_where_much_would_be_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    from tiny import CPU, make_model

    from shoal.learn import activations

    model = make_model("llama")
    kept = activations.count_activations(model, CPU).kept(1, 100, above=100)
    monkeypatch.setattr(activations, "free_bytes", lambda _: 2**40)
    assert activations.checkpoint_above(model, CPU, 100) == 100
    monkeypatch.setattr(activations, "KEPT_AT_MOST", kept - 1)
    assert activations.checkpoint_above(model, CPU, 100) == 0
    monkeypatch.setattr(activations, "KEPT_AT_MOST", 2**40)
    monkeypatch.setattr(activations, "free_bytes", lambda _: 4 * kept - 4)
    assert activations.checkpoint_above(model, CPU, 100) == 0


def test_parts_of_an_estimate() -> None:
    from shoal.learn.memory import KINDS, estimate

    sizes, work = models()
    parts = estimate([(sizes, work)], 5 * 10**8)
    assert tuple(parts) == KINDS
    assert parts["weights"] == 4 * 4 * 10**8
    assert parts["optimizer"] == 4 * 8 * 10**8
    assert parts["reference"] == 0
    assert parts["activations"] == round(sizes.activations.kept(1, 1000, 1000))
    kept = estimate([(sizes, replace(work, reference=True))], 5 * 10**8)
    assert kept["reference"] == 4 * 4 * 10**8
    adapted = estimate([(sizes.with_adapters(8), work)], 5 * 10**8)
    assert adapted["weights"] == 4 * (10**8 - 8 * 300_000 + 4 * 8 * 300_000)  # the base is shared


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "gemma3", "gpt2"])
def test_a_shared_prefix_is_kept_once(architecture: str) -> None:
    from tiny import CPU, make_model

    from shoal.learn.activations import count_activations, count_once, trial_batch
    from shoal.policy.vision import read_prefix

    model, length, shared = make_model(architecture), 30, 60
    with torch.no_grad():
        prefix = read_prefix(model, [1] * shared, CPU)
    behind = count_once(model, CPU, trial_batch(3, length, CPU.device, shared), prefix)
    once = count_once(model, CPU, trial_batch(1, shared, CPU.device))
    whole = sum(kept for counts in (behind, once) for kept, _ in counts.values())
    estimated = count_activations(model, CPU).kept(3, length, above=10_000, shared=shared)
    assert estimated == pytest.approx(whole, rel=0.1)
