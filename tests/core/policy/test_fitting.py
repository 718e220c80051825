"""How a model is decoded and trained: by shoal's own passes where they are right, else by transformers' own."""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import CPU, assert_same, make_lm, make_policy, make_scored, make_tokenizer, plain_logprobs, weights
from transformers import AutoModelForCausalLM, BloomConfig, JambaConfig, MambaConfig

from shoal.errors import say_once
from shoal.learn import learner as learning
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Request, Sampling
from shoal.policy.decoders.generate import GenerateDecoder, fitting_decoder
from shoal.policy.decoders.own import OwnDecoder
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, load

SLOW = ("mamba", "jamba", "bloom")
"""A recurrent model, a hybrid, and one whose attention cannot be replaced."""
PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16, 17]]
STOPS = frozenset(range(0, 300, 9))


def slow_lm(architecture: str) -> LanguageModel:
    tokenizer = make_tokenizer()
    common: dict[str, Any] = {"vocab_size": len(tokenizer), "hidden_size": 16, "initializer_range": 0.3}
    common |= {"bos_token_id": None, "eos_token_id": 1, "pad_token_id": 0}
    if architecture == "bloom":
        config: Any = BloomConfig(n_layer=2, n_head=2, **common)
    elif architecture == "mamba":
        config = MambaConfig(state_size=4, num_hidden_layers=2, **common)
    else:
        config = JambaConfig(
            num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1, intermediate_size=32, num_experts=2,
            attn_layer_period=2, attn_layer_offset=1, mamba_d_state=4, use_mamba_kernels=False, **common,
        )  # fmt: skip
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    return LanguageModel(f"tiny-{architecture}", model, tokenizer, frozenset([1]), 1, 0)


def drawn(decoder: Any, prompts: list[list[int]] = PROMPTS, seeds: Any = (0, 1, 2), **sampling: Any) -> Any:
    return decoder.decode(Request(prompts, 3, seeds, Sampling(**{"max_completion_length": 8, **sampling}), STOPS))


@pytest.mark.parametrize("architecture", SLOW)
def test_a_model_that_shoal_cannot_read_is_decoded_by_transformers(
    architecture: str, capsys: pytest.CaptureFixture[str]
) -> None:
    say_once.cache_clear()
    lm = slow_lm(architecture)
    decoder = fitting_decoder(lm, CPU)
    assert isinstance(decoder, GenerateDecoder)
    fitting_decoder(lm, CPU)
    [line] = capsys.readouterr().err.splitlines()  # once for all nodes
    assert f"model 'tiny-{architecture}' ({architecture})" in line
    assert line.endswith("which is slower")
    for temperature in (1.0, 0.7):
        for prompt, group in zip(PROMPTS, drawn(decoder, temperature=temperature), strict=True):
            for one in group:
                expected = plain_logprobs(lm.model, prompt, one.token_ids, temperature).tolist()
                assert one.logps == pytest.approx(expected, abs=1e-4)
                assert one.stopped == (one.token_ids[-1] in STOPS)
                assert not STOPS & set(one.token_ids[:-1])


@pytest.mark.parametrize("architecture", SLOW)
def test_what_transformers_draws_depends_on_the_seed_alone(architecture: str) -> None:
    decoder = GenerateDecoder(slow_lm(architecture), CPU)
    together = drawn(decoder)
    assert together == drawn(decoder)
    assert together != drawn(decoder, seeds=(5, 6, 7))
    assert [drawn(decoder, [prompt], [seed])[0] for seed, prompt in enumerate(PROMPTS)] == together


@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7}, {"top_p": 0.5}, {"temperature": 0.0}])
@pytest.mark.parametrize("use_cache", [True, False])
def test_transformers_draws_what_shoal_draws(use_cache: bool, sampling: dict[str, float]) -> None:
    lm = make_lm()
    lm.model.generation_config.repetition_penalty = 2.0  # which is no part of the policy
    ours, theirs = drawn(OwnDecoder(lm, CPU), **sampling), drawn(GenerateDecoder(lm, CPU, use_cache), **sampling)
    assert lm.model.generation_config.repetition_penalty == 2.0
    for one, other in zip(chain(*ours), chain(*theirs), strict=True):
        assert (one.token_ids, one.stopped) == (other.token_ids, other.stopped)
        assert one.logps == pytest.approx(other.logps, abs=1e-4)


def test_a_step_is_the_same_with_answers_packed_and_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    batch = [
        make_scored("2 + 2 =", ["4", "5", "22", [7]], [1, 0, 0, 0]),
        make_scored("2 + 3 =", ["5", "a longer answer", [9]], [1, 0.5, 0]),
    ]
    packed, single = make_policy(), make_policy()
    first = GRPOLearner(packed, learning_rate=1e-2)
    monkeypatch.setattr(learning, "takes_packed", lambda policy: False)
    second = GRPOLearner(single, learning_rate=1e-2)
    ours, theirs = first.update(batch).metrics, second.update(batch).metrics
    assert ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-4)
    assert ours["entropy"] == pytest.approx(theirs["entropy"], rel=1e-4)
    assert theirs["tokens/read"] > ours["tokens/read"]
    assert_same(weights(single.lm.model), weights(packed.lm.model), 1e-3)


@pytest.mark.parametrize("architecture", SLOW)
def test_what_transformers_trains_goes_on_exactly_after_a_pause(architecture: str, tmp_path: Path) -> None:
    def policy_of(lm: LanguageModel) -> tuple[LanguagePolicy, GRPOLearner]:
        policy = LanguagePolicy(lm, Sampling(max_completion_length=6), CPU)
        return policy, GRPOLearner(policy, learning_rate=1e-2)

    batch = [make_scored("2 + 2 =", ["4", "5", "22"], [1, 0, 0])]
    policy, learner = policy_of(slow_lm(architecture))
    assert not learner.packs
    before = weights(policy.lm.model)
    learner.update(batch)
    assert any(not torch.equal(before[name], after) for name, after in weights(policy.lm.model).items())
    policy.save(tmp_path)
    learner.save(tmp_path)
    again, learner_again = policy_of(load(str(tmp_path), CPU.device))
    learner_again.load(tmp_path)
    question = [batch[0].question]
    assert again.generate(question, 2, seed=3) == policy.generate(question, 2, seed=3)
    learner.update(batch)
    learner_again.update(batch)
    for name, weight in weights(policy.lm.model).items():
        assert torch.equal(weights(again.lm.model)[name], weight)
