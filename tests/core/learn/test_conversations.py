"""Learning from conversations: the gradient is that of one plain pass in which only the policy's tokens count."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
import torch
from talking import Echo, conversation, talked, whole_of
from tiny import InDouble, assert_same, clone, gradients, limit, make_policy, plain_logprobs

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.batch import Row, Trained, tensors
from shoal.learn.learner import GRPOLearner
from shoal.policy.language import LanguagePolicy
from shoal.rollout import Completion, Scored
from shoal.tasks.environments.task import EnvironmentTask

TASK = EnvironmentTask(Echo, {})
PAPER = PeersConfig(weight="none(baseline_shift=0, limit=0)")


def scored(seed: int, *completions: Completion, rewards: tuple[float, ...], from_peer: bool = False) -> Scored:
    question = TASK.question(seed, 0)
    return Scored(talked(question, *completions), question, rewards, from_peer=from_peer)


def batch() -> list[Scored]:
    return [
        scored(
            1,
            conversation("the fox", "4, yes", "dog", observations=("no", "the quick", "so")),
            conversation("lazy", observations=("so",)),
            conversation("7", "2 + 2 =", cut=True, observations=("higher", "x")),
            rewards=(1.0, 0.0, 0.25),
        ),
        scored(
            2,
            conversation("brown", "", observations=("", "end")),
            conversation("jumps", "over", observations=("question", "end")),
            rewards=(0.0, 1.0),
            from_peer=True,
        ),
    ]


def by_hand(policy: LanguagePolicy, groups: list[Scored], loss_type: str) -> dict[str, torch.Tensor]:
    """Each conversation alone, all of it in one pass; tokens that the environment says have no part in the loss."""
    losses = []
    for s in groups:
        mean = sum(s.rewards) / len(s.rewards)
        for completion, reward in zip(s.rollout.completions, s.rewards, strict=True):
            whole, own = whole_of(policy, s.question, completion)
            logps = plain_logprobs(policy.lm.model, policy.prompt_ids(s.question), whole)[own]
            losses.append(-(reward - mean) * logps)
    if loss_type == "grpo":
        loss = torch.stack([each.mean() for each in losses]).mean()
    elif loss_type == "dr_grpo":
        loss = torch.cat(losses).sum() / (len(losses) * policy.sampling.max_completion_length)
    else:
        loss = torch.cat(losses).mean()
    loss.backward()
    found = gradients(policy.lm.model)
    policy.lm.model.zero_grad()
    return found


def learned(
    policy: LanguagePolicy, groups: list[Scored], budget: int | None = None, **settings: Any
) -> dict[str, torch.Tensor]:
    """The gradient that the learner applies."""
    config, limits = LearnerConfig(**settings), {"budget": budget, "checkpoint_tokens": 10_000}
    learner = limit(GRPOLearner(policy, config, PAPER, 1e-3), max_grad_norm=1e9, **limits)
    found: list[dict[str, torch.Tensor]] = []
    learner.optimizer.register_step_pre_hook(lambda *_: found.append(gradients(learner.model)))
    learner.update(groups)
    [gradient] = found
    return gradient


@pytest.mark.parametrize("loss_type", ["dapo", "grpo", "dr_grpo"])
@pytest.mark.parametrize(("architecture", "chat"), [("llama", True), ("gemma3", False)])
def test_the_gradient_is_that_of_plain_passes(architecture: str, chat: bool, loss_type: str) -> None:
    policy = make_policy(architecture, chat=chat, double=True, max_completion_length=12)
    with InDouble():
        expected = by_hand(clone(policy), batch(), loss_type)
        found = learned(policy, batch(), loss_type=loss_type, scale_rewards="none", budget=64)
    assert_same(found, expected, 1e-7)


def test_what_the_environment_says_last_is_not_learned_from() -> None:
    """One turn is as a rollout without an environment."""
    plain = [scored(1, Completion.of("yes"), Completion.of("no"), rewards=(1.0, 0.0))]
    one_turn = [
        scored(1, *(conversation(t, observations=("so",)) for t in ("yes", "no")), rewards=(1.0, 0.0)),
    ]
    policy = make_policy(double=True)
    assert_same(learned(clone(policy), one_turn), learned(clone(policy), plain), 1e-12)


def test_a_conversation_is_one_sequence() -> None:
    row = Row([5, 6], (Trained([7, 1, 8, 1], 1.0, 1.0, 0, observed={2: [9, 10]}), Trained([3, 1], 1.0, 1.0, 4)))
    found = tensors([row], torch.device("cpu"))
    assert found.input_ids_RS.tolist() == [[5, 6, 7, 1, 9, 10, 8, 3]]
    assert len(row) == 8
    assert found.positions_RS.tolist() == [[0, 1, 2, 3, 4, 5, 6, 2]]
    assert found.columns_T.tolist() == [1, 2, 5, 6, 1, 7]  # what predicts each trained token
    assert found.targets_T.tolist() == [7, 1, 8, 1, 3, 1]
    assert found.offsets_T.tolist() == [0, 1, 2, 3, 4, 5]


def test_a_conversation_that_is_too_long_leaves_its_group() -> None:
    policy = make_policy(double=True, max_completion_length=4)
    long = conversation("yes", "the quick brown fox jumps over it", observations=("a", "b"))
    group = scored(1, long, conversation("no", observations=("a",)), rewards=(1.0, 0.0), from_peer=True)
    learner = GRPOLearner(policy, LearnerConfig(), PAPER, 1e-3)
    assert learner.update([group]).metrics["tokens/trained"] == 0 or policy.conversation_ids(group.question, long)[0]


def test_observations_are_part_of_a_checkpoint() -> None:
    kept = batch()[0]
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(kept), type=Scored) == kept
