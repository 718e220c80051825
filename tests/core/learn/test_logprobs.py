"""Log-probabilities of packed rows equal those of separate passes, and so do their gradients."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from tiny import (
    ARCHITECTURES,
    WINDOW,
    assert_same,
    gradients,
    in_double,
    make_model,
    make_tokenizer,
    plain_logits,
    plain_logprobs,
)  # fmt: skip

from shoal.errors import UserError
from shoal.learn import logprobs
from shoal.learn.batch import Trained, make_rows, micro_batches
from shoal.learn.logprobs import check_architecture, token_logprobs
from shoal.policy.loading import LanguageModel

CPU = torch.device("cpu")
GROUPS = [(6, [9, 1, 4]), (2, [3, 12]), (11, [5]), (12, [3])]
"""Prompt length and completion lengths of each group: with prompts shorter and longer than the sliding window, and than
the answers behind them."""


def make_groups(seed: int = 0) -> list[tuple[list[int], list[list[int]]]]:
    draw = random.Random(seed)
    return [
        ([draw.randrange(2, 90) for _ in range(p)], [[draw.randrange(2, 90) for _ in range(n)] for n in lengths])
        for p, lengths in GROUPS
    ]


def packed(model: Any, budget: int, temperature: float = 1.0) -> tuple[torch.Tensor, torch.Tensor, int]:
    """Log-probabilities and entropies of all groups in order, and the number of passes it took."""
    rows, slot = [], 0
    for prompt, answers in make_groups():
        sequences = []
        for answer in answers:
            sequences.append(Trained(answer, 0.0, 0.0, slot))
            slot += len(answer)
        rows += make_rows(prompt, sequences, budget)
    logps, entropy = torch.zeros(slot, dtype=model.dtype), torch.zeros(slot, dtype=model.dtype)
    batches = list(micro_batches(rows, budget, CPU))
    for batch in batches:
        logps_T, entropy_T = token_logprobs(model, batch, temperature)
        logps = logps.index_put((batch.offsets_T,), logps_T)
        entropy[batch.offsets_T] = entropy_T
    return logps, entropy, len(batches)


def separate(model: Any, temperature: float = 1.0) -> torch.Tensor:
    return torch.cat([plain_logprobs(model, p, a, temperature) for p, answers in make_groups() for a in answers])


def backward(model: Any, logps: torch.Tensor) -> dict[str, torch.Tensor]:
    """The gradient of a sum in which every token counts differently."""
    model.zero_grad()
    (logps * torch.linspace(-1, 1, len(logps), dtype=logps.dtype).cos()).sum().backward()
    return gradients(model)


@pytest.mark.parametrize("budget", [1000, 30, 8], ids=["one pass", "some", "one sequence each"])
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packing_changes_neither_log_probabilities_nor_gradients(architecture: str, budget: int) -> None:
    model = in_double(make_model(architecture))
    logps, _, passes = packed(model, budget, temperature=0.7)
    expected = separate(model, temperature=0.7)
    assert logps.dtype == torch.float64
    assert (passes > 1) == (budget < 1000)
    torch.testing.assert_close(logps, expected, rtol=1e-5, atol=1e-5)
    assert_same(backward(model, logps), backward(model, expected))


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_packing_changes_nothing_in_float32_either(architecture: str) -> None:
    model = make_model(architecture)
    torch.testing.assert_close(packed(model, 1000)[0], separate(model), rtol=1e-5, atol=1e-5)


def test_rows_are_longer_than_the_sliding_window_and_the_window_matters() -> None:
    model = make_model("gemma3")
    wide = make_model("gemma3")
    for layer in wide.model.layers:
        layer.self_attn.sliding_window = 1000
    wide.config.sliding_window = 1000
    assert max(p for p, _ in GROUPS) > WINDOW
    assert (packed(model, 1000)[0] - packed(wide, 1000)[0]).abs().max() > 0.01


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_plain_attention_gives_the_same_as_torchs_own(architecture: str) -> None:
    model, eager = make_model(architecture), make_model(architecture)
    eager.set_attn_implementation("eager")
    torch.testing.assert_close(packed(eager, 30)[0], packed(model, 30)[0], rtol=1e-5, atol=1e-5)


def test_entropy_is_that_of_the_distribution_sampled_from() -> None:
    model = make_model()
    _, entropy, _ = packed(model, 1000, temperature=0.7)
    expected = torch.cat(
        [
            torch.distributions.Categorical(logits=plain_logits(model, prompt, answer) / 0.7).entropy()
            for prompt, answers in make_groups()
            for answer in answers
        ]
    )
    torch.testing.assert_close(entropy, expected.detach(), rtol=1e-5, atol=1e-5)


def test_logits_are_bounded_in_number_and_nothing_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    model = make_model()
    whole = packed(model, 1000)[0]
    expected = backward(model, whole)
    held: list[int] = []
    model.lm_head.register_forward_hook(lambda _module, _inputs, output: held.append(output.numel()))
    monkeypatch.setattr(logprobs, "CHUNK_ELEMENTS", 2100)  # 7 tokens of a vocabulary of 300
    chunked = packed(model, 1000)[0]
    torch.testing.assert_close(chunked, whole)
    assert_same(backward(model, chunked), expected, 1e-6)
    assert max(held) <= 2100


def test_capped_logits_are_capped() -> None:
    model = make_model("gemma3", final_logit_softcapping=2.0)
    torch.testing.assert_close(packed(model, 1000)[0], separate(model), rtol=1e-5, atol=1e-5)


def named(model: Any) -> LanguageModel:
    return LanguageModel("m", model, make_tokenizer(), frozenset([1]), 1, 0)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_known_architectures_are_accepted(architecture: str) -> None:
    check_architecture(named(make_model(architecture)))


def test_an_architecture_that_scales_its_logits_is_accepted() -> None:
    from transformers import CohereConfig, CohereForCausalLM

    torch.manual_seed(0)
    config = CohereConfig(
        vocab_size=60,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        logit_scale=0.1,
        initializer_range=0.5,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )
    check_architecture(named(CohereForCausalLM(config).eval()))


def test_an_architecture_without_attention_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=60, hidden_size=16, state_size=4, num_hidden_layers=1, initializer_range=0.5)
    with pytest.raises(UserError, match=r"model 'm' \(mamba\)"):
        check_architecture(named(MambaForCausalLM(config).eval()))
