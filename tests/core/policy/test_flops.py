"""Floating-point operations, beside those that torch counts."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from support.tiny_vision import TEXT, make_vision_lm, picture, shown
from talking import Echo, Here, conversation, talked, whole_of
from tiny import CPU, make_model, make_policy, make_question, make_scored
from torch.utils.flop_counter import FlopCounterMode

from shoal.config.sections import LearnerConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.decoders.base import Sampling
from shoal.policy.flops import Flops
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion, Part, Rollout, Scored
from shoal.tasks.environments.task import EnvironmentTask

READ = 7


def counted(call: Any) -> int:
    """Of matrix products with weights, not those between tokens."""
    with FlopCounterMode(display=False) as counter:
        call()
    counts = counter.get_flop_counts()["Global"]
    return sum(count for op, count in counts.items() if str(op) in ("aten.mm", "aten.addmm"))


@pytest.mark.parametrize("architecture", ["llama", "grouped", "qwen2", "qwen3_moe", "olmoe"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_pass_is_counted_as_torch_counts_it(architecture: str, tied: bool) -> None:
    model = make_model(architecture, tie_word_embeddings=tied)
    if "moe" in model.config.model_type:
        model.set_experts_implementation("eager")
    ids = torch.arange(READ)[None]
    assert Flops.of(model).passes(READ, READ) == counted(lambda: model(ids))


def test_learning_is_three_passes() -> None:
    model = make_model("llama")
    model.set_input_embeddings(torch.nn.Embedding.from_pretrained(model.get_input_embeddings().weight, freeze=False))
    found = counted(lambda: model(torch.arange(READ)[None]).logits.sum().backward())
    assert Flops.of(model).learning(READ, READ) == pytest.approx(found, rel=0.05)  # the first layer's input has none


def test_adapters_cost_two_passes_and_a_little() -> None:
    pytest.importorskip("peft")
    from shoal.policy.lora import add_adapters

    lm = make_policy().lm
    whole = Flops.of(lm.model)
    cost = Flops.of(add_adapters(lm, 1, seed=0).model)
    assert 0 < cost.trained < 0.2
    assert 2 / 3 < cost.learning(100, 50) / whole.learning(100, 50) < 1


def test_an_answer_and_an_update_say_what_they_cost() -> None:
    policy = make_policy()
    question = make_question()
    cost = Flops.of(policy.lm.model)
    prompt = len(policy.prompt_ids(question))
    answers = [Completion((Part("x"),), token_ids=(5,) * 7), Completion((Part("y"),), token_ids=(6,) * 5)]
    assert policy.cost([question], [answers]) == (prompt, cost.answering(prompt, 12))
    scored = make_scored("2 + 2 =", [[5, 6, 7], [8, 9]], [1.0, 0.0])
    metrics = GRPOLearner(policy, LearnerConfig(num_iterations=2), learning_rate=0.0).update([scored]).metrics
    read = len(policy.prompt_ids(scored.question)) + 2 + 1
    assert metrics["tokens/read"] == 2 * read
    assert metrics["tokens/trained"] == 2 * 5
    assert metrics["flops/learn"] == cost.learning(read, 5, steps=2, others=1)  # and one pass for what it was before


def test_of_a_picture_its_tokens_are_counted() -> None:
    policy = LanguagePolicy(make_vision_lm("llava"), Sampling(max_completion_length=8), CPU)
    text, one = Flops.of(policy.lm.model), shown("how many?", picture(1))
    embeddings = torch.zeros(1, READ, TEXT["hidden_size"])
    assert text.passes(READ, READ) == counted(lambda: policy.lm.model(inputs_embeds=embeddings))
    prompt = len(policy.prompt_ids(one))
    answer = Completion((Part("x"),), token_ids=(5,) * 7)
    assert policy.cost([one], [[answer]]) == (prompt, text.answering(prompt, 7))
    scored = Scored(Rollout(one.id, one.hash, tuple(map(Completion.of, ("3", "no"))), "ada", 1), one, (0.0, 1.0))
    metrics = GRPOLearner(policy, LearnerConfig(), learning_rate=0.0).update([scored]).metrics
    assert metrics["flops/learn"] == 3 * text.passes(int(metrics["tokens/read"]), int(metrics["tokens/trained"]))


@pytest.mark.parametrize("chat", [False, True])
def test_what_an_environment_says_is_read_and_counted(chat: bool) -> None:
    """All but the last observation, after which the policy says nothing: by all passes that are made."""
    policy, task = make_policy(chat=chat, max_completion_length=6), EnvironmentTask(Echo, {"word": "so"})
    policy.replayer = Here(task)
    question = task.question(seed=1, index=0)
    cost = Flops.of(policy.lm.model)
    said = conversation("good", "end", observations=("word 1", "word 2"))
    prompt, (whole, own) = len(policy.prompt_ids(question)), whole_of(policy, question, said)
    heard = len(whole) - len(own)
    assert heard > 2
    read, flops = policy.cost([question], [[said, conversation("end", observations=("word 1",))]])
    made = len(own) + len(policy.completion_ids(conversation("end", observations=("word 1",))))
    assert (read, flops) == (prompt + heard, cost.answering(prompt + heard, made))
    scored = Scored(talked(question, said, Completion.of("end")), question, (1.0, 0.0))
    metrics = GRPOLearner(policy, LearnerConfig(), learning_rate=0.0).update([scored]).metrics
    alone = len(policy.completion_ids(Completion.of("end")))
    read = prompt + len(whole) - 1 + alone - 1
    assert metrics["tokens/read"] == read
    assert metrics["flops/learn"] == cost.learning(read, len(own) + alone)


def test_nothing_learned_costs_nothing() -> None:
    metrics = GRPOLearner(make_policy(), learning_rate=0.0).update([]).metrics
    assert metrics["tokens/read"] == metrics["flops/learn"] == 0
