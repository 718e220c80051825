"""Mixtures of experts: log-probabilities, gradients and the auxiliary loss are those of transformers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from test_learner import FAR, ByHand, ids_of, make_learner, record, rollouts
from test_logprobs import backward, packed, separate
from tiny import EXPERTS, InDouble, assert_same, clone, in_double, make_model, make_policy, make_scored
from transformers.models.qwen3_moe.modeling_qwen3_moe import load_balancing_loss_func

from shoal.errors import UserError
from shoal.learn.batch import Trained, make_rows, micro_batches
from shoal.learn.routers import load_balancing, readers, router_coefficient
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Scored

CPU = torch.device("cpu")
EXACT = 1e-9


@pytest.mark.parametrize("budget", [1000, 30, 8], ids=["padded", "some", "one sequence each"])
@pytest.mark.parametrize("architecture", EXPERTS)
def test_packed_rows_are_exactly_the_model_s_own_forward_pass(architecture: str, budget: int) -> None:
    """Which experts a token takes depends on no other row, and on no padding."""
    model = in_double(make_model(architecture))
    with InDouble():
        logps, _, _ = packed(model, budget)
        expected = separate(model)
        torch.testing.assert_close(logps, expected, rtol=EXACT, atol=EXACT)
        assert_same(backward(model, logps), backward(model, expected), EXACT)


@pytest.mark.parametrize("seed", range(3))
def test_the_loss_is_that_of_transformers(seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    logits = [torch.randn(21, 6, generator=draw).requires_grad_() for _ in range(3)]
    mask = torch.rand(3, 7, generator=draw) < 0.7
    ours = load_balancing(logits, mask.flatten().float(), 2)
    theirs = load_balancing_loss_func(tuple(logits), 6, 2, mask.long())
    torch.testing.assert_close(ours, theirs)
    for mine, other in zip(torch.autograd.grad(ours, logits), torch.autograd.grad(theirs, logits), strict=True):
        torch.testing.assert_close(mine, other)


def test_even_loads_cost_least() -> None:
    even = 5 * torch.eye(4)[torch.arange(8) % 4]
    assert load_balancing([even], torch.ones(8), 1) == pytest.approx(1.0)
    assert load_balancing([even[:1].expand(8, 4)], torch.ones(8), 1) > 3.5


def test_a_position_counts_for_every_completion_that_reads_it() -> None:
    row = make_rows([5, 6], [Trained([7, 8, 9], 1.0, 1.0, 0), Trained([3], 1.0, 1.0, 3)], 100)
    other = make_rows([4], [Trained([2, 2], 1.0, 1.0, 4)], 100)
    (batch,) = micro_batches([*row, *other], 100, CPU)
    assert readers(batch).reshape(2, 4).tolist() == [[2, 2, 1, 1], [1, 1, 0, 0]]


class WithRouters(ByHand):
    """The update with transformers' own auxiliary loss over all that is read, each completion in a row of its own."""

    def loss(self, order: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        return super().loss(order, old) + COEFFICIENT * own_aux_loss(self.model, read_by(self.policy, order))


def read_by(policy: LanguagePolicy, order: Sequence[Scored]) -> list[list[int]]:
    """Each question with one of its answers, without the last token, which predicts nothing."""
    read = []
    for s in order:
        prompt = policy.lm.tokenizer.encode(s.question.text + "\n")
        read += [[*prompt, *ids[:-1]] for c in s.rollout.completions if (ids := ids_of(policy, c))]
    return read


def own_aux_loss(model: Any, read: Sequence[Sequence[int]]) -> torch.Tensor:
    ids = torch.nn.utils.rnn.pad_sequence([torch.tensor(each) for each in read], batch_first=True)
    mask = torch.nn.utils.rnn.pad_sequence([torch.ones(len(each), dtype=torch.long) for each in read], batch_first=True)
    loss: torch.Tensor = model(ids, attention_mask=mask, output_router_logits=True, use_cache=False).aux_loss
    return loss


COEFFICIENT = 0.5
"""Large enough to matter."""


@pytest.mark.parametrize("checkpoint_tokens", [10_000, 0])
@pytest.mark.parametrize("architecture", EXPERTS)
def test_the_gradient_has_the_auxiliary_loss_s(architecture: str, checkpoint_tokens: int) -> None:
    policy = make_policy(architecture, double=True, router_aux_loss_coef=COEFFICIENT)
    options: dict[str, Any] = {"beta": 0.1, "num_iterations": 2, "budget": 10_000}
    learner = make_learner(policy, sgd=True, checkpoint_tokens=checkpoint_tokens, **options)
    by_hand = WithRouters(policy, learner.config, torch.optim.SGD, 1e-2)
    found = record(learner)
    metrics = learner.update(rollouts(), seed=3).metrics
    by_hand.update(rollouts(), seed=3)
    for actual, expected in zip(found, by_hand.gradients, strict=True):
        assert_same(actual, expected, 1e-6)  # transformers adds the loss up in float32
    assert 1.9 < metrics["aux_loss"] < 3.0


def test_with_several_micro_batches_each_counts_by_its_tokens() -> None:
    policy = make_policy("olmoe", double=True, router_aux_loss_coef=COEFFICIENT)
    found = []
    for tokens in (25, 10_000):
        learner = make_learner(clone(policy), budget=tokens)
        found.append(learner.update(rollouts()).metrics["aux_loss"])
    assert found[0] != found[1]  # loads are more uneven in a part than in the whole
    assert found[0] == pytest.approx(found[1], rel=0.2)


def test_the_model_declares_the_weight() -> None:
    assert router_coefficient(make_model("llama"), "tiny") == 0
    assert router_coefficient(make_model("olmoe", router_aux_loss_coef=0.25), "tiny") == 0.25


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_what_is_no_weight_is_an_error_of_one_line(weight: float) -> None:
    model = make_model("qwen3_moe", router_aux_loss_coef=weight)
    with pytest.raises(UserError, match=r"^model 'tiny' declares router_aux_loss_coef = .* or more$"):
        router_coefficient(model, "tiny")


def test_with_weight_0_nothing_is_computed() -> None:
    assert "aux_loss" not in make_learner(make_policy("qwen3_moe")).update(rollouts()).metrics


def test_nothing_to_learn_moves_no_router() -> None:
    policy = make_policy("qwen3_moe", router_aux_loss_coef=COEFFICIENT)
    learner = make_learner(policy, max_grad_norm=FAR)
    assert "aux_loss" not in learner.update([make_scored("all the same", ["4", "5"], [1, 1])]).metrics
