"""What the prompts of several rows begin with is computed once, and log-probabilities and gradients stay the same."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from tiny import (
    ARCHITECTURES,
    CPU,
    InDouble,
    assert_same,
    clone,
    gradients,
    in_double,
    make_model,
    make_policy,
    make_scored,
    weights,
)

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn import batch as batching
from shoal.learn.batch import Row, Trained, make_rows, micro_batches, row_families
from shoal.learn.checkpointing import Checkpointing
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import Prefix, token_logprobs
from shoal.policy.attention import attention
from shoal.policy.families import Family

EVERY = [*ARCHITECTURES, "gemma2", "grouped"]
PREFIXES = [list(range(5, 65)), list(range(100, 170))]
PROMPTS = [
    *([*PREFIXES[0], 70 + n, *range(80, 80 + 3 * n)] for n in range(3)),
    *([*PREFIXES[1], 90 + n] for n in (1, 2)),
]
PROMPTS += [[7, 8, 9]]
ANSWERS = [[9, 1, 4], [3, 12, 8, 8, 2], [5]]


def rows_of(budget: int = 1000) -> tuple[list[Row], int]:
    rows: list[Row] = []
    slot = 0
    for prompt in PROMPTS:
        sequences = []
        for answer in ANSWERS:
            sequences.append(Trained(answer, 0.0, 0.0, slot))
            slot += len(answer)
        rows += make_rows(prompt, sequences, budget)
    return rows, slot


def learned(model: Any, shared: bool, budget: int, above: int = 10_000) -> tuple[torch.Tensor, dict[str, Any]]:
    """Log-probabilities of all tokens, and the gradient of a sum in which every token counts differently."""
    rows, slots = rows_of(budget)
    weights_L = torch.linspace(-1, 1, slots, dtype=torch.float64).cos()
    logps = torch.zeros(slots, dtype=torch.float64)
    model.zero_grad()
    checkpointing = Checkpointing(model, above)
    precision = InDouble() if above else nullcontext()  # not what is computed again in the backward pass
    with precision, attention(model):
        for family in row_families(rows) if shared else [batching.Family(rows)]:
            with checkpointing.of(family.shared):
                prefix = Prefix(model, family.prefix_ids, CPU) if family.shared else None
            for batch in micro_batches(family.rows, budget, CPU.device, family.shared):
                with checkpointing.of(batch.input_ids_RS.numel()):
                    logps_T, _ = token_logprobs(model, batch, 0.7, prefix.layers if prefix else [])
                (logps_T * weights_L[batch.offsets_T]).sum().backward()
                logps[batch.offsets_T] = logps_T.detach().double()
            if prefix is not None:
                prefix.backward()
    return logps, gradients(model)


@pytest.mark.parametrize("budget", [1000, 90, 30], ids=["few passes", "some", "many"])
@pytest.mark.parametrize("architecture", EVERY)
def test_sharing_changes_neither_log_probabilities_nor_gradients(architecture: str, budget: int) -> None:
    model = in_double(make_model(architecture))
    logps, gradient = learned(model, True, budget)
    expected_logps, expected = learned(model, False, budget)
    torch.testing.assert_close(logps, expected_logps, rtol=0, atol=1e-10)
    assert_same(gradient, expected, 1e-10)


@pytest.mark.parametrize("architecture", EVERY)
def test_nor_does_it_where_layers_are_checkpointed(architecture: str) -> None:
    model = in_double(make_model(architecture))
    expected_logps, expected = learned(model, False, 90)
    logps, gradient = learned(model, True, 90, above=0)
    torch.testing.assert_close(logps, expected_logps, rtol=1e-5, atol=1e-5)
    assert_same(gradient, expected, 1e-5)


def test_adapters_get_the_gradient_by_way_of_the_prefix() -> None:
    pytest.importorskip("peft")
    from shoal.policy.lora import add_adapters

    lm = add_adapters(make_policy(double=True).lm, 2, seed=0)
    with torch.no_grad():
        for weight in lm.model.parameters():
            if weight.requires_grad:
                weight.normal_(0, 0.1)
    assert_same(learned(lm.model, True, 90)[1], learned(lm.model, False, 90)[1], 1e-10)


def test_a_prefix_is_computed_once_forward_and_backward() -> None:
    model = make_model()
    forward: list[int] = []
    backward: list[int] = []
    model.model.layers[0].mlp.register_forward_hook(lambda _m, inputs, _o: forward.append(inputs[0].shape[1]))
    model.model.layers[0].mlp.register_full_backward_hook(lambda _m, _i, out: backward.append(out[0].shape[1]))
    learned(in_double(model), True, 30)
    assert forward.count(60) == backward.count(60) == 1
    assert forward.count(70) == backward.count(70) == 1
    assert len(forward) == len(backward) > 5


def test_passes_keep_to_the_budget_with_the_prefix_counted() -> None:
    rows, slots = rows_of(100)
    seen: list[int] = []
    for family in row_families(rows):
        for batch in micro_batches(family.rows, 100, CPU.device, family.shared):
            assert batch.shared == family.shared
            assert batch.shared + batch.input_ids_RS.numel() <= 100 or len(batch.input_ids_RS) == 1
            seen += batch.offsets_T.tolist()
    assert sorted(seen) == list(range(slots))


def test_rows_of_one_group_share_their_prompt() -> None:
    sequences = [Trained([1] * 30, 0.0, 0.0, 30 * n, from_peer=True) for n in range(4)]
    rows = make_rows(list(range(80)), sequences, 140)
    assert len(rows) == 2
    [family] = row_families(rows)
    assert family.shared == 79


@pytest.mark.parametrize("config", [{}, {"num_iterations": 2}], ids=["one step", "two"])
def test_an_update_takes_the_same_step_with_and_without(
    config: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = make_policy(double=True)
    other = clone(policy)
    examples = "2 + 2 = 4, " * 12
    scored = [make_scored(f"{examples}{n} + 1 =", [[9, 8, 1], [5, 6, 7, 1]], [1.0, 0.0]) for n in range(4)]
    prompts = [policy.prompt_ids(s.question) for s in scored]
    assert row_families([Row(ids, ()) for ids in prompts])[0].shared > 30
    results = []
    for each in (policy, other):
        learner = GRPOLearner(each, LearnerConfig(optim="adafactor", **config), PeersConfig(), 1e-3)
        results.append(learner.update(scored))
        monkeypatch.setattr(batching, "families", lambda prompts: [Family(tuple(range(len(prompts))), 0)])
    shared, apart = (dict(each.metrics) for each in results)
    for cost in ("tokens/read", "flops/learn"):
        assert shared.pop(cost) < apart.pop(cost) / 2
    assert shared == pytest.approx(apart, rel=1e-6)
    assert_same(weights(policy.lm.model), weights(other.lm.model), 1e-8)
