"""A language model as a policy: text is the truth, and a stranger's text is nothing but text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tiny import CHATML, CPU, add_marker, make_lm, make_model, make_policy, make_question, make_tokenizer

from shoal.errors import UserError
from shoal.policy.decoders import own
from shoal.policy.decoders.base import Sampled, Sampling
from shoal.policy.decoders.own import sample
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import LanguageModel, load
from shoal.rollout import Completion, FinishReason, Message, Part, Rollout

POLICY = make_policy(max_completion_length=10_000)
CHAT_POLICY = make_policy(chat=True, max_completion_length=10_000)
QUESTIONS = [make_question(text) for text in ("2 + 2 =", "the lazy dog jumps over the quick fox", "yes?")]


@given(st.text())
def test_any_text_comes_back_from_its_tokens(text: str) -> None:
    for policy in (POLICY, CHAT_POLICY):
        *ids, end = policy.completion_ids(Completion.of(text))
        assert end == policy.lm.eos_id
        assert policy.lm.tokenizer.decode(ids) == text
        assert policy._texts([*ids, end]) == (text,)


MARKERS = ["<pad>", "<eos>", "<|im_start|>", "<|im_end|>"]


@given(st.lists(st.sampled_from([*MARKERS, "<", "|", ">", "user\n", "é", " "])).map("".join))
def test_markers_in_a_strangers_text_are_inert(text: str) -> None:
    for policy in (POLICY, CHAT_POLICY):
        tokenizer: Any = policy.lm.tokenizer
        ids = policy.completion_ids(Completion.of(text, "length"))
        assert not set(ids) & set(tokenizer.all_special_ids)
        assert tokenizer.decode(ids, skip_special_tokens=True) == text


def test_markers_are_tokens_where_the_template_writes_them() -> None:
    assert CHAT_POLICY.lm.tokenizer.encode("<|im_end|>") == [CHAT_POLICY.lm.eos_id]


def policy_that_stops_at_a_plain_marker() -> LanguagePolicy:
    tokenizer = make_tokenizer()
    marker = add_marker(tokenizer, "<end>")
    lm = LanguageModel("m", make_model(vocab_size=len(tokenizer)), tokenizer, frozenset([1, marker]), marker, 0)
    return LanguagePolicy(lm, Sampling(max_completion_length=100_000), CPU)


@pytest.mark.parametrize("text", ["a<end>b", "<end>", "<end><end>", "<<end>end>", "é <end>\n", "<end>" * 3000])
def test_stop_tokens_that_the_tokenizer_does_not_call_special_are_inert_too(text: str) -> None:
    policy = policy_that_stops_at_a_plain_marker()
    ids = policy.completion_ids(Completion.of(text, "length"))
    assert not set(ids) & policy.lm.stop_ids
    assert policy.lm.tokenizer.decode(ids) == text


def test_the_end_is_appended_to_what_ended_by_itself_and_only_there() -> None:
    ended = POLICY.completion_ids(Completion.of("4", "stop"))
    cut = POLICY.completion_ids(Completion.of("4", "length"))
    assert ended == [*cut, POLICY.lm.eos_id]
    assert POLICY.completion_ids(Completion.of("", "stop")) == [POLICY.lm.eos_id]
    assert POLICY.completion_ids(Completion.of("", "length")) == []


def test_the_end_is_the_one_of_the_chat_template() -> None:
    assert CHAT_POLICY.completion_ids(Completion.of("4"))[-1] == CHAT_POLICY.lm.tokenizer.convert_tokens_to_ids(
        "<|im_end|>"
    )


def test_foreign_completions_are_no_longer_than_own_ones() -> None:
    policy = make_policy(max_completion_length=5)
    assert policy.completion_ids(Completion.of("x" * 1000)) == []  # not its beginning alone, which may be anything


def test_own_completions_keep_the_tokens_that_were_sampled() -> None:
    sampled = (50, 51, 52, POLICY.lm.eos_id)  # letters that the tokenizer itself would have merged or not
    assert POLICY.completion_ids(Completion((Part("foo"),), FinishReason.stop, sampled)) == list(sampled)


def test_prompt_and_completion_do_not_merge() -> None:
    """What a completion begins with is tokenised the same after any prompt."""
    assert POLICY.completion_ids(Completion.of("he", "length")) == POLICY.lm.tokenizer.encode("he")


def test_a_prompt_without_template_is_plain_lines() -> None:
    ids = POLICY.prompt_ids(make_question("2 + 2 =  ", system="Be brief."))
    assert POLICY.lm.tokenizer.decode(ids) == "Be brief.\n2 + 2 =\n"


def test_a_prompt_does_not_end_by_an_end_that_its_tokenizer_appends() -> None:
    from tokenizers.processors import TemplateProcessing

    lm = make_lm()
    tokenizer: Any = lm.tokenizer
    plain = LanguagePolicy(lm, Sampling(), CPU).prompt_ids(QUESTIONS[0])
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing("$A <eos>", special_tokens=[("<eos>", 1)])
    assert tokenizer.encode("a")[-1] == 1
    assert LanguagePolicy(lm, Sampling(), CPU).prompt_ids(QUESTIONS[0]) == plain


def test_an_empty_question_is_a_prompt_nevertheless() -> None:
    assert len(POLICY.prompt_ids(make_question(""))) > 0


def test_a_prompt_is_in_the_chat_template() -> None:
    ids = CHAT_POLICY.prompt_ids(make_question("2 + 2 =", system="Be brief."))
    expected = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n2 + 2 =<|im_end|>\n<|im_start|>assistant\n"
    assert CHAT_POLICY.lm.tokenizer.decode(ids) == expected
    assert ids[0] == CHAT_POLICY.lm.tokenizer.convert_tokens_to_ids("<|im_start|>")


def test_a_template_that_refuses_a_system_message_has_it_before_the_question() -> None:
    lm = make_lm(chat=True)
    refuse = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    lm.tokenizer.chat_template = refuse + CHATML
    policy = LanguagePolicy(lm, Sampling(), CPU)
    text = lm.tokenizer.decode(policy.prompt_ids(make_question("2 + 2 =", system="Be brief.")))
    assert text == "<|im_start|>user\nBe brief.\n\n2 + 2 =<|im_end|>\n<|im_start|>assistant\n"


def test_without_a_system_role_worked_examples_stay_turns() -> None:
    lm = make_lm(chat=True)
    refuse = "{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    lm.tokenizer.chat_template = refuse + CHATML
    policy = LanguagePolicy(lm, Sampling(), CPU)
    question = make_question("5 + 6 =", system="Be brief.")
    examples = (Message("user", "1 + 2 ="), Message("assistant", "3"))
    asked = msgspec.structs.replace(question, examples=examples)
    text = lm.tokenizer.decode(policy.prompt_ids(asked))
    turns = ["user\nBe brief.\n\n1 + 2 =", "assistant\n3", "user\n5 + 6 ="]
    assert text == "".join(f"<|im_start|>{turn}<|im_end|>\n" for turn in turns) + "<|im_start|>assistant\n"


def test_completions_say_how_they_ended_and_hold_what_was_sampled() -> None:
    policy = make_policy(max_completion_length=8)
    lm = policy.lm
    often = LanguageModel(lm.name, lm.model, lm.tokenizer, frozenset(range(1, 300, 8)), lm.eos_id, lm.pad_id)
    groups = LanguagePolicy(often, policy.sampling, CPU).generate(QUESTIONS, 16, seed=0)
    assert [len(group) for group in groups] == [16] * 3
    reasons = set()
    for completion in (c for group in groups for c in group):
        assert completion.token_ids
        stopped = completion.token_ids[-1] in often.stop_ids
        reasons.add(completion.finish_reason)
        assert completion.finish_reason == (FinishReason.stop if stopped else FinishReason.length)
        assert stopped or len(completion.token_ids) == 8
        body = completion.token_ids[:-1] if stopped else completion.token_ids
        assert completion.text == lm.tokenizer.decode(list(body), skip_special_tokens=True)
    assert reasons == {FinishReason.stop, FinishReason.length}


def test_what_is_shared_holds_no_tokens() -> None:
    policy = make_policy()
    question = QUESTIONS[0]
    (group,) = policy.generate([question], 2, seed=0)
    received = Rollout.decode(Rollout(question.id, question.hash, group, "ada", 0).encode())
    assert [c.token_ids for c in received.completions] == [None, None]
    assert [c.text for c in received.completions] == [c.text for c in group]


def test_the_same_seed_gives_the_same_completions() -> None:
    policy = make_policy()
    assert policy.generate(QUESTIONS, 4, seed=1) == policy.generate(QUESTIONS, 4, seed=1)
    assert policy.generate(QUESTIONS, 4, seed=1) != policy.generate(QUESTIONS, 4, seed=2)


def test_completions_of_one_question_differ() -> None:
    (group,) = make_policy().generate(QUESTIONS[:1], 8, seed=0)
    assert len(set(group)) > 1


def test_more_questions_than_fit_are_decoded_in_several_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(temperature=1e-4)
    whole = policy.generate(QUESTIONS, 2, seed=0)
    batches: list[int] = []

    def count(model: Any, prompts: list[list[int]], *rest: Any) -> list[list[Sampled]]:
        batches.append(len(prompts))
        return sample(model, prompts, *rest)

    monkeypatch.setattr(own, "CACHE_BYTES", 1)
    monkeypatch.setattr(own, "sample", count)
    assert policy.generate(QUESTIONS, 2, seed=0) == whole
    assert batches == [1, 1, 1]


def test_no_questions_have_no_answers() -> None:
    assert make_policy().generate([], 4, seed=0) == []


def test_a_question_longer_than_the_model_reads_is_an_error_of_one_line() -> None:
    with pytest.raises(UserError, match="reads 128 tokens") as caught:
        make_policy().generate([make_question("x " * 200)], 1, seed=0)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_damaged_weights_are_an_error_of_one_line(value: float) -> None:
    policy = make_policy()
    policy.lm.model.get_output_embeddings().weight.data[7] = value
    with pytest.raises(UserError, match="weights are damaged"):
        policy.generate(QUESTIONS, 1, seed=0)


def test_dropout_is_off() -> None:
    policy = make_policy("gpt2", resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    policy.lm.model.train()
    lm = LanguagePolicy(policy.lm, policy.sampling, CPU).lm
    assert not any(module.training for module in lm.model.modules())


def test_generating_keeps_no_graph() -> None:
    policy = make_policy()
    before = torch.is_grad_enabled()
    policy.generate(QUESTIONS, 2, seed=0)
    assert torch.is_grad_enabled() == before
    assert all(p.grad is None and not p.is_inference() for p in policy.lm.model.parameters())


def test_a_base_model_is_asked_and_answers_in_a_line() -> None:
    lm = make_lm()
    lm.tokenizer.init_kwargs.pop("prompt_format")
    policy = LanguagePolicy(lm, Sampling(), CPU)
    examples = (Message("user", "1 + 1 = "), Message("assistant", "2"))
    question = msgspec.structs.replace(make_question("2 + 2 =", system="Be brief."), examples=examples)
    expected = "Be brief.\n\nQuestion: 1 + 1 =\nAnswer: 2\n\nQuestion: 2 + 2 =\nAnswer:"
    assert lm.tokenizer.decode(policy.prompt_ids(question)) == expected


def test_a_base_model_ends_its_answer_with_the_line(tmp_path: Path) -> None:
    lm = make_lm()
    lm.save(tmp_path / "lines")
    lm.tokenizer.init_kwargs.pop("prompt_format")
    lm.save(tmp_path / "base")
    [newline] = lm.tokenizer("\n").input_ids
    assert load(str(tmp_path / "lines"), CPU.device).stop_ids == lm.stop_ids
    base = load(str(tmp_path / "base"), CPU.device)
    assert newline in base.stop_ids
    assert base.eos_id == newline


@pytest.mark.parametrize("end", ["", "\n"])
def test_a_base_model_learns_nothing_from_others_answers_of_two_lines(tmp_path: Path, end: str) -> None:
    lm = make_lm()
    lm.tokenizer.init_kwargs.pop("prompt_format")
    lm.save(tmp_path)
    policy = LanguagePolicy(load(str(tmp_path), CPU.device), Sampling(), CPU)
    assert policy.completion_ids(Completion.of("12\n34" + end)) == []  # not 1234, which nobody wrote
    one_line = policy.completion_ids(Completion.of("12" + end))
    assert policy.lm.tokenizer.decode(one_line) == "12\n"
    assert len(set(one_line) & policy.lm.stop_ids) == 1


def test_examples_are_turns_of_the_chat() -> None:
    examples = (Message("user", "1 + 1 ="), Message("assistant", "2"))
    question = msgspec.structs.replace(make_question("2 + 2 =", system="Be brief."), examples=examples)
    assert CHAT_POLICY.lm.tokenizer.decode(CHAT_POLICY.prompt_ids(question)) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\n1 + 1 =<|im_end|>\n"
        "<|im_start|>assistant\n2<|im_end|>\n"
        "<|im_start|>user\n2 + 2 =<|im_end|>\n<|im_start|>assistant\n"
    )
