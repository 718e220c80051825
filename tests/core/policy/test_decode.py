"""Batched sampling: what is shared, padded or dropped changes nothing in what is drawn."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import ARCHITECTURES, CPU, InDouble, in_double, make_model, make_tokenizer, plain_logits, plain_logprobs

from shoal.errors import UserError
from shoal.policy.decoders import bucket, own, rows
from shoal.policy.decoders.base import Request, Sampled, Sampling, check_decoder, ordinary_tokens
from shoal.policy.decoders.draw import draw
from shoal.policy.decoders.graphs import Graphs
from shoal.policy.decoders.own import cache_bytes_per_token, sample
from shoal.policy.families import Family
from shoal.policy.loading import LanguageModel

PROMPTS = [[5, 6, 7], [8], [9, 10, 11, 12, 13, 14, 15, 16, 17], [18, 19]]
"""Of unequal length: shorter and longer than the sliding window of gemma3."""


def run(
    model: Any,
    prompts: Sequence[Sequence[int]] = PROMPTS,
    num_generations: int = 3,
    stop_ids: Sequence[int] = (),
    seed: int = 0,
    **sampling: Any,
) -> list[list[Sampled]]:
    settings = Sampling(**{"max_completion_length": 10, **sampling})
    seeds = [1000 * seed + number for number in range(len(prompts))]
    graphs = Graphs(model, CPU) if STATIC else None
    return sample(model, prompts, num_generations, settings, frozenset(stop_ids), CPU, seeds, graphs=graphs)


STATIC: list[bool] = []
"""Not empty: steps have static shapes, as they have on a GPU."""


@pytest.fixture(autouse=True, params=["each step as it comes", "static shapes"])
def steps(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "STATIC", [True] if request.param == "static shapes" else [])
    monkeypatch.setattr(own, "LOOK", 3)
    monkeypatch.setattr(bucket, "BLOCK", 4)


@pytest.fixture
def scripted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Draws that depend on a row's own logits alone, whichever rows stand beside it. Gives the batch sizes."""
    sizes: list[int] = []

    def choose(logits_BV: torch.Tensor, _sampling: Sampling, _chance_B: torch.Tensor) -> tuple[torch.Tensor, ...]:
        B, V = logits_BV.shape
        noise_V = 3 * torch.randn(V, generator=torch.Generator().manual_seed(len(sizes)))
        first_B = torch.arange(B) % 3 + 20  # the completions of a prompt begin differently
        token_B = (logits_BV + noise_V).argmax(-1) if sizes else first_B
        sizes.append(B)
        return token_B, torch.zeros(B)

    monkeypatch.setattr(rows, "draw", choose)
    return sizes


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_a_shared_prompt_gives_the_log_probabilities_of_separate_passes(
    architecture: str, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bucket, "GROWTH", 4)  # so that room is made several times
    model = make_model(architecture)
    groups = run(model, stop_ids=range(0, 300, 9), temperature=temperature)  # so that some end early
    for prompt, group in zip(PROMPTS, groups, strict=True):
        for completion in group:
            expected = plain_logprobs(model, prompt, completion.token_ids, temperature).tolist()
            assert completion.logps == pytest.approx(expected, rel=1e-5, abs=1e-5)
    completions = {tuple(c.token_ids) for group in groups for c in group}
    assert len(completions) > 8  # they are not all alike
    assert len({len(c) for c in completions}) > 2


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_padding_changes_nothing(architecture: str, scripted: list[int]) -> None:
    model = make_model(architecture)
    together = run(model)
    for prompt, group in zip(PROMPTS, together, strict=True):
        scripted.clear()
        assert run(model, [prompt]) == [group]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_dropping_what_has_ended_changes_nothing_for_the_rest(architecture: str, scripted: list[int]) -> None:
    model = make_model(architecture)
    endless = run(model, max_completion_length=16)
    everything = [c.token_ids for group in endless for c in group]
    stops = [everything[row][step] for row, step in ((0, 3), (4, 5), (7, 8))]
    scripted.clear()
    ending = run(model, stop_ids=stops, max_completion_length=16)
    assert scripted[0] == 12
    assert min(scripted) < 12
    for whole, completion in zip(everything, [c for group in ending for c in group], strict=True):
        ends = [step for step, token in enumerate(whole) if token in stops]
        assert completion.token_ids == (whole[: ends[0] + 1] if ends else whole)
        assert completion.stopped == bool(ends)


def test_prompts_are_decoded_together_while_padding_is_no_more_than_they_are() -> None:
    assert list(own.length_batches([4, 9, 8, 4, 40])) == [[0, 3, 2], [1], [4]]


def test_every_completion_ends_by_its_own_stop_token_or_at_the_longest_length() -> None:
    stops = range(0, 300, 8)
    completions = [c for group in run(make_model(), num_generations=16, stop_ids=stops) for c in group]
    assert {c.stopped for c in completions} == {True, False}
    for c in completions:
        assert not any(token in stops for token in c.token_ids[:-1])
        assert c.stopped == (c.token_ids[-1] in stops)
        assert len(c.token_ids) == 10 or (c.stopped and len(c.token_ids) < 10)


def test_a_stop_token_at_the_longest_length_is_a_stop(scripted: list[int]) -> None:
    model = make_model()
    ((whole,),) = run(model, PROMPTS[:1], 1)
    scripted.clear()
    ((cut,),) = run(model, PROMPTS[:1], 1, stop_ids=[whole.token_ids[4]], max_completion_length=5)
    assert whole.token_ids[4] not in whole.token_ids[:4]
    assert cut.stopped


def test_what_has_ended_is_not_computed_on() -> None:
    model = make_model()
    tokens: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: tokens.append(inputs[0].numel()))
    run(model, stop_ids=range(300))
    assert tokens == [4, 3, 9]  # the prompts once, the two shortest padded to one length; all end at their first token


def test_each_prompt_is_read_once_for_all_its_completions() -> None:
    model = make_model()
    tokens: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: tokens.append(inputs[0].numel()))
    run(model, [PROMPTS[2]], num_generations=8, max_completion_length=3)
    assert tokens == [9, 8, 8]


FAMILIES = [
    *([*range(5, 45), 60 + number, *range(70, 70 + 2 * number)] for number in range(4)),
    *([*range(45, 85), 90 + number] for number in range(3)),
    [7, 8, 9],
]
"""Prompts that begin with one of two prefixes of 40 tokens, and one that does not."""


def without_sharing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own, "families", lambda prompts: [Family(tuple(range(len(prompts))), 0)])


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "gemma2", "grouped"])
def test_sharing_a_prefix_changes_nothing(architecture: str, monkeypatch: pytest.MonkeyPatch) -> None:
    model = in_double(make_model(architecture))
    stops = range(0, 300, 9)  # some end early, so that rows move
    with InDouble():
        shared = run(model, FAMILIES, stop_ids=stops)
        without_sharing(monkeypatch)
        alone = run(model, FAMILIES, stop_ids=stops)
    for ours, theirs in zip(shared, alone, strict=True):
        assert [c.token_ids for c in ours] == [c.token_ids for c in theirs]
        for a, b in zip(ours, theirs, strict=True):
            assert a.logps == pytest.approx(b.logps, rel=0, abs=1e-10)


@pytest.mark.parametrize("architecture", [*ARCHITECTURES, "gemma2", "grouped"])
def test_behind_a_shared_prefix_log_probabilities_are_those_of_separate_passes(architecture: str) -> None:
    model = in_double(make_model(architecture))
    with InDouble():
        for prompt, group in zip(FAMILIES, run(model, FAMILIES), strict=True):
            for completion in group:
                expected = plain_logprobs(model, prompt, completion.token_ids).tolist()
                assert completion.logps == pytest.approx(expected, rel=0, abs=1e-10)


def test_a_shared_prefix_is_read_once() -> None:
    model = make_model()
    tokens: list[int] = []
    model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: tokens.append(inputs[0].numel()))
    run(model, [[*range(5, 85), 90 + number] for number in range(6)], num_generations=2, max_completion_length=2)
    assert tokens == [80, 6, 12]


def test_the_same_seed_gives_the_same_tokens() -> None:
    model = make_model()
    assert run(model, seed=5) == run(model, seed=5)
    assert run(model, seed=5) != run(model, seed=6)


def test_temperature_near_nought_is_greedy() -> None:
    model = make_model()
    for prompt, group in zip(PROMPTS, run(model, temperature=1e-4), strict=True):
        for completion in group:
            best = plain_logits(model, prompt, completion.token_ids).argmax(-1)
            assert completion.token_ids == best.tolist()


def test_what_is_drawn_for_a_prompt_does_not_depend_on_the_others() -> None:
    model = make_model()
    for number, group in enumerate(run(model, PROMPTS, stop_ids=range(0, 300, 9))):
        settings, stops = Sampling(max_completion_length=10), frozenset(range(0, 300, 9))
        (alone,) = sample(model, [PROMPTS[number]], 3, settings, stops, CPU, [number])
        assert [c.token_ids for c in alone] == [c.token_ids for c in group]


@pytest.mark.parametrize("chance", [0.0, 0.5, 1 - 2**-53])
@pytest.mark.parametrize("top_p", [1.0, 0.5])
def test_the_ends_of_chance_give_tokens_that_have_probability(chance: float, top_p: float) -> None:
    logits = torch.full((1, 1000), -200.0)
    logits[0, [3, 700]] = torch.tensor([0.0, 1.0])
    token, logp = draw(logits, Sampling(top_p=top_p), torch.tensor([chance], dtype=torch.float64))
    assert token.item() in (3, 700)
    assert torch.isfinite(logp).all()


LOGITS = torch.tensor([2.0, 0.5, 1.0, -1.0, 0.0, -3.0])
N = 40_000


def frequencies(**sampling: float) -> torch.Tensor:
    settings = Sampling(**sampling)  # type: ignore[arg-type]
    tokens, _ = draw(LOGITS.repeat(N, 1), settings, torch.rand(N, generator=torch.Generator().manual_seed(0)))
    return torch.bincount(tokens, minlength=len(LOGITS)) / N


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_frequencies_are_those_of_the_softmax_at_the_temperature(temperature: float) -> None:
    weights = (LOGITS.double() / temperature).exp()
    torch.testing.assert_close(
        frequencies(temperature=temperature), (weights / weights.sum()).float(), rtol=0, atol=0.01
    )


@pytest.mark.parametrize(("top_p", "nucleus"), [(0.3, [0]), (0.6, [0, 2]), (0.85, [0, 1, 2]), (0.95, [0, 1, 2, 4])])
def test_top_p_keeps_exactly_the_nucleus(top_p: float, nucleus: list[int]) -> None:
    probs = LOGITS.softmax(
        -1
    )  # 0.539, 0.120, 0.198, 0.027, 0.073, 0.004, and from the likeliest on 0.54, 0.74, 0.86, 0.93
    expected = torch.zeros_like(probs)
    expected[nucleus] = probs[nucleus] / probs[nucleus].sum()
    found = frequencies(top_p=top_p)
    assert found.nonzero()[:, 0].tolist() == nucleus
    torch.testing.assert_close(found, expected, rtol=0, atol=0.01)


@given(st.lists(st.floats(-8, 8), min_size=2, max_size=20), st.floats(0.01, 0.999))
def test_what_top_p_draws_is_in_the_smallest_set_that_has_this_much(logits: list[float], top_p: float) -> None:
    logits_BV = torch.tensor([logits] * 20)
    probs = logits_BV[0].softmax(-1)
    tokens, _ = draw(logits_BV, Sampling(top_p=top_p), torch.linspace(0, 0.999, 20))
    for token in tokens.tolist():
        assert probs[probs > probs[token]].sum() < top_p + 1e-5


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_the_size_of_the_cache_is_known_before(architecture: str) -> None:
    from transformers import DynamicCache

    model = make_model(architecture)
    cache = DynamicCache()  # without the model's configuration, so that no layer slides
    model(torch.tensor([[5, 6, 7, 8]]), past_key_values=cache)
    layers: Any = cache.layers
    held = sum(4 * (layer.keys.numel() + layer.values.numel()) for layer in layers)
    assert cache_bytes_per_token(model) * 4 == held


def check(model: Any) -> None:
    lm = LanguageModel("tiny", model, make_tokenizer(), frozenset([1]), 1, 0)
    check_decoder(own.OwnDecoder(lm, CPU), lm, CPU)


def test_a_model_whose_attention_cannot_be_replaced_is_refused() -> None:
    from transformers import MambaConfig, MambaForCausalLM

    config = MambaConfig(vocab_size=50, hidden_size=16, state_size=4, num_hidden_layers=1)
    with pytest.raises(UserError, match="'tiny' \\(mamba\\) cannot be decoded here"):
        check(MambaForCausalLM(config))


def test_a_model_that_does_something_unknown_to_its_scores_is_refused() -> None:
    from transformers import HyperCLOVAXConfig, HyperCLOVAXForCausalLM

    check(make_model())
    config = HyperCLOVAXConfig(
        vocab_size=50, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2,
        num_key_value_heads=2, logits_scaling=1e3, pad_token_id=0, eos_token_id=1,
    )  # fmt: skip
    with pytest.raises(UserError, match="nats off"):
        check(HyperCLOVAXForCausalLM(config))


def test_no_control_token_decides_whether_a_model_can_be_decoded() -> None:
    """A trained SmolLM2 was refused for what it says after a control token, where float32 is off by 0.03 nats."""
    model = make_model()
    V = model.config.vocab_size
    assert all(V // 2 <= token < V for token in ordinary_tokens(model))
    assert len(set(ordinary_tokens(model))) == 8


def without_memory_for(answers: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batches of more answers run out of memory. Gives the answers of each batch that was tried."""
    tried: list[int] = []

    def limited(model: Any, prompts: Sequence[Sequence[int]], num_generations: int, *rest: Any) -> list[list[Sampled]]:
        tried.append(len(prompts) * num_generations)
        if tried[-1] > answers:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return sample(model, prompts, num_generations, *rest)

    monkeypatch.setattr(own, "sample", limited)
    return tried


def asked(num_generations: int = 3) -> Request:
    return Request(PROMPTS, num_generations, range(len(PROMPTS)), Sampling(max_completion_length=4), frozenset())


def test_where_memory_runs_out_fewer_are_answered_at_once_and_the_answers_are_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    said: list[str] = []
    monkeypatch.setattr(own, "say_once", said.append)
    decoder = own.OwnDecoder(LanguageModel("tiny", make_model(), make_tokenizer(), frozenset([1]), 1, 0), CPU)
    whole = [[each.token_ids for each in group] for group in decoder.decode(asked())]
    tried = without_memory_for(6, monkeypatch)
    assert [[each.token_ids for each in group] for group in decoder.decode(asked())] == whole
    assert tried == [12, 6, 6]
    assert len(said) == 1
    assert said[0].startswith("memory ran out while answering 4 question(s) at once: fewer are asked at once")
    tried.clear()
    decoder.decode(asked())
    assert tried == [6, 6], "the next round begins with what there was room for"


def test_a_question_without_room_for_its_answers_is_left_out_but_for_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    lm = LanguageModel("tiny", make_model(), make_tokenizer(), frozenset([1]), 1, 0)
    decoder = own.OwnDecoder(lm, CPU)
    decoder.decode(asked())
    without_memory_for(2, monkeypatch)
    assert decoder.decode(asked()) == [[]] * len(PROMPTS)
    with pytest.raises(UserError, match="lower --num-generations"):
        own.OwnDecoder(lm, CPU).decode(asked())
