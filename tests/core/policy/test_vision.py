"""Vision-language models answer and learn as in transformers' own forward pass; no text shows a picture."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support.tiny import CPU, make_lm
from support.tiny_vision import SIZE, VISION, make_vision_lm, picture, shown

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.errors import UserError
from shoal.learn.batch import Row, Trained, micro_batches, row_families
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import Prefix, token_logprobs
from shoal.policy.attention import attention
from shoal.policy.decoders.base import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.policy.pictures import MOST, NUMBER_BITS, number_of, picture_ids, place_of, positions
from shoal.policy.vision import vision_of
from shoal.rollout import Completion, Rollout, Scored

ANSWERS = [[4, 9, 1], [11, 7], [4, 8, 6, 1]]


def own_logps(lm: Any, prompt: list[int], pictures: Any, answer: list[int]) -> torch.Tensor:
    """Log-probabilities of an answer in transformers' own forward pass: nothing is shared, masked or packed."""
    vision = vision_of(lm.model)
    assert vision is not None
    ids = torch.tensor([[id if id >= 0 else vision.image_id for id in prompt] + answer])
    logits = lm.model(**vision.own_inputs(ids, pictures), use_cache=False).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1)[range(len(answer)), answer]


def gradients(model: Any) -> dict[str, torch.Tensor]:
    found = {n: w.grad.clone() for n, w in model.named_parameters() if w.grad is not None}
    model.zero_grad()
    return found


@pytest.mark.parametrize("family", VISION)
def test_answers_have_the_probabilities_of_the_models_own_pass(family: str) -> None:
    policy = LanguagePolicy(make_vision_lm(family, double=True), Sampling(max_completion_length=5), CPU)
    vision = policy.lm.vision
    assert vision is not None
    questions = [shown("2 + 2 =", picture(1)), shown("the fox", picture(2), picture(3)), shown("no picture at all")]
    if family.startswith("qwen"):  # pictures of any shape
        questions.append(shown("wide", picture(4, 4 * SIZE, SIZE)))
    for question, group in zip(questions, policy.generate(questions, 3, seed=0), strict=True):
        for answer in group:
            assert answer.token_ids
            assert answer.logprobs
            if vision.image_id in answer.token_ids:  # which shows no picture here, but would in the other pass
                continue
            own = own_logps(policy.lm, policy.prompt_ids(question), question.pictures, list(answer.token_ids))
            assert own.tolist() == pytest.approx(answer.logprobs, abs=1e-6)


@pytest.mark.parametrize("family", VISION)
# In float64, too, transformers computes positions and norms in float32.
@pytest.mark.parametrize(("double", "within"), [(False, 1e-5), (True, 5e-7)])
def test_log_probabilities_and_gradients_are_those_of_the_models_own_pass(
    family: str, double: bool, within: float
) -> None:
    lm = make_vision_lm(family, double=double)
    policy = LanguagePolicy(lm, Sampling(max_completion_length=8), CPU)
    question = shown("how many?", picture(1))
    prompt = policy.prompt_ids(question)
    ours, start = [], 0
    for answer in ANSWERS:
        ours.append(Trained(answer, 0.0, 0.0, start))
        start += len(answer)
    # one row, then two rows that share a prefix with the picture in it
    for rows in ([Row(prompt, tuple(ours))], [Row(prompt, tuple(ours[:1])), Row(prompt, tuple(ours[1:]))]):
        own = torch.cat([own_logps(lm, prompt, question.pictures, answer) for answer in ANSWERS])
        (own * torch.linspace(1, 2, len(own))).sum().backward()
        expected = gradients(lm.model)
        found = torch.zeros_like(own)
        with attention(lm.model):
            for family_of_rows in row_families(rows * 40 if len(rows) > 1 else rows):
                shared = family_of_rows.shared
                assert bool(shared) == (len(rows) > 1)
                prefix = Prefix(lm.model, family_of_rows.prefix_ids, policy.placement) if shared else None
                (batch,) = micro_batches(rows, 1000, policy.placement.device, shared)
                logps_T, _ = token_logprobs(lm.model, batch, 1.0, prefix.layers if prefix else [])
                (logps_T * torch.linspace(1, 2, len(own))[batch.offsets_T]).sum().backward()
                if prefix:
                    prefix.backward()
                found[batch.offsets_T] = logps_T.detach()
        assert (found - own.detach()).abs().max() < within
        made = gradients(lm.model)
        assert made.keys() == expected.keys()
        assert any("vision" in name or "visual" in name for name in made)
        scale = max(float(g.abs().max()) for g in expected.values())
        assert max(float((made[n] - expected[n]).abs().max()) for n in made) < within * max(1.0, scale)


def test_one_update_makes_the_better_answer_likelier() -> None:
    policy = LanguagePolicy(make_vision_lm("llava"), Sampling(max_completion_length=8), CPU)
    question = shown("how many?", picture(1))
    learner = GRPOLearner(policy, LearnerConfig(), PeersConfig(), learning_rate=1e-3)
    before = own_logps(policy.lm, policy.prompt_ids(question), question.pictures, [5, 6, 1])
    completions = tuple(Completion.of(text) for text in ("3", "no"))
    scored = Scored(Rollout(question.id, question.hash, completions, "ada", 1), question, (0.0, 1.0), from_peer=True)
    right = policy.completion_ids(completions[1])
    before = own_logps(policy.lm, policy.prompt_ids(question), question.pictures, right)
    learner.update([scored])
    after = own_logps(policy.lm, policy.prompt_ids(question), question.pictures, right)
    assert after.sum() > before.sum()


def test_text_that_spells_a_picture_is_only_text() -> None:
    policy = LanguagePolicy(make_vision_lm("llava"), Sampling(max_completion_length=64), CPU)
    vision = vision_of(policy.lm.model)
    assert vision is not None
    for text in ("<image>", "<begin><image><end>", "say <image> twice <image>"):
        ids = policy.completion_ids(Completion.of(text))
        assert vision.image_id not in ids
        assert min(ids) >= 0
        asked = policy.prompt_ids(shown(text, picture(1)))
        assert sum(id < 0 for id in asked) == 16  # the one picture of the question, and no other
        assert vision.image_id not in asked


def test_a_text_model_says_that_it_cannot_see() -> None:
    policy = LanguagePolicy(make_lm(), Sampling(max_completion_length=8), CPU)
    with pytest.raises(UserError, match="shows pictures, and model 'tiny-llama' reads text alone"):
        policy.prompt_ids(shown("what?", picture(1)))


def test_a_chat_template_writes_the_picture_before_the_question() -> None:
    template = (
        "{% for m in messages %}{{ m.role }}: {% for part in m.content %}{% if part.type == 'image' %}<image>"
        "{% elif part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}\n{% endfor %}assistant:"
    )
    policy = LanguagePolicy(make_vision_lm("idefics3", template=template), Sampling(max_completion_length=8), CPU)
    ids = policy.prompt_ids(shown("fox", picture(1)))
    first = next(place for place, id in enumerate(ids) if id < 0)
    tokenizer: Any = policy.lm.tokenizer
    assert tokenizer.decode(ids[:first]) == "user: <fake_token_around_image><global-img>"
    assert tokenizer.decode(ids[first + 4 :]) == "<fake_token_around_image>foxassistant:"


def test_a_saved_model_sees_the_same(tmp_path: Any) -> None:
    lm = make_vision_lm("llava")
    lm.tokenizer.init_kwargs["prompt_format"] = "lines"
    lm.save(tmp_path)
    question = shown("what?", picture(1))
    answers = [
        LanguagePolicy(one, Sampling(max_completion_length=6), CPU).generate([question], 2, seed=3)
        for one in (lm, load(str(tmp_path), CPU.device))
    ]
    assert answers[0] == answers[1]


@given(st.integers(0, 2**NUMBER_BITS - 1), st.integers(1, MOST), st.integers(1, MOST), st.integers(0, 5))
def test_picture_ids_keep_what_they_are_made_of(number: int, count: int, span: int, before: int) -> None:
    ids = picture_ids(number, count, span)
    assert max(ids) < 0
    assert min(ids) >= -(2**63)
    assert {number_of(id) for id in ids} == {number}
    assert [place_of(id) for id in ids] == list(range(count))
    found = positions([1] * before + ids + [1])
    assert list(found[before : before + count]) == list(range(before, before + count))
    assert list(found[before + count :]) == [before + span, before + span + 1]
