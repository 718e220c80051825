"""PPO with a critic: advantages and gradients equal those worked out by hand."""

from __future__ import annotations

import copy
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_learner import EOS, ByHand, ids_of, make_learner, perturb, record, rollouts
from tiny import CPU, assert_same, clone, make_policy, make_scored, plain_logprobs, weights

from shoal.learn.batch import Trained
from shoal.learn.critic import Critic, explained_variance, generalised_advantages, whiten
from shoal.learn.learner import GRPOLearner
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Completion, Scored

DEAD = make_scored("all the same", [[3, EOS], [4, 5, EOS]], [1, 1])


def doubles(*values: float) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def trained(*lengths_and_rewards: tuple[int, float]) -> list[Trained]:
    sequences, slot = [], 0
    for length, reward in lengths_and_rewards:
        sequences.append(Trained([7] * length, 0.0, 0.0, slot, reward))
        slot += length
    return sequences


def test_advantages_sum_what_the_critic_had_not_foreseen() -> None:
    values = doubles(0.2, 0.4, 0.1, 0.5)
    advantages, returns = generalised_advantages(values, trained((3, 1.0), (1, 0.0)), gamma=0.9, lam=0.5)
    last = 1 - 0.1
    second = (0.9 * 0.1 - 0.4) + 0.45 * last
    first = (0.9 * 0.4 - 0.2) + 0.45 * second
    expected = doubles(first, second, last, -0.5)
    torch.testing.assert_close(advantages, expected)
    torch.testing.assert_close(returns, expected + values)


groups = st.lists(st.tuples(st.integers(1, 9), st.floats(0, 1)), min_size=1, max_size=6)


@given(groups, st.floats(0, 1), st.randoms(use_true_random=False))
def test_looking_to_the_end_is_discounted_reward_less_value(
    group: list[tuple[int, float]], gamma: float, random: Any
) -> None:
    values = doubles(*[random.uniform(-1, 1) for length, _ in group for _ in range(length)])
    _, returns = generalised_advantages(values, trained(*group), gamma, 1.0)
    expected = [reward * gamma ** (length - 1 - t) for length, reward in group for t in range(length)]
    torch.testing.assert_close(returns, doubles(*expected))


@given(groups, st.randoms(use_true_random=False))
def test_looking_one_token_ahead_is_the_change_of_value(group: list[tuple[int, float]], random: Any) -> None:
    values = [[random.uniform(-1, 1) for _ in range(length)] for length, _ in group]
    flat = doubles(*[v for each in values for v in each])
    advantages, _ = generalised_advantages(flat, trained(*group), 1.0, 0.0)
    later = [v for each, (_, reward) in zip(values, group, strict=True) for v in [*each[1:], reward]]
    torch.testing.assert_close(advantages, doubles(*later) - flat)


def test_the_order_of_sequences_is_their_slots() -> None:
    sequences = trained((2, 1.0), (3, 0.5))
    values = doubles(0.1, 0.2, 0.3, 0.4, 0.5)
    for ours, theirs in zip(
        generalised_advantages(values, sequences, 0.9, 0.8),
        generalised_advantages(values, sequences[::-1], 0.9, 0.8),
        strict=True,
    ):
        assert torch.equal(ours, theirs)


def test_whitened_values_have_mean_0_and_variance_1() -> None:
    white = whiten(doubles(3, 5, 10))
    assert white.mean().item() == pytest.approx(0)
    assert white.var().item() == pytest.approx(1)
    assert whiten(doubles(3)).tolist() == [0]


def test_explained_variance() -> None:
    returns = doubles(0, 1, 0, 1)
    assert explained_variance(returns, returns) == 1
    assert explained_variance(doubles(3, 3, 3, 3), returns) == 0
    assert explained_variance(1 - returns, returns) == pytest.approx(-3)
    assert not math.isfinite(explained_variance(returns, doubles(1, 1, 1, 1)))


def test_a_critic_begins_with_nothing_and_does_not_move_the_policy_yet() -> None:
    critic = Critic(4, 1e-2, torch.device("cpu"), torch.bfloat16)
    hidden = torch.randn(3, 4, requires_grad=True)
    values = critic(hidden)
    assert values.dtype == torch.float32
    assert values.tolist() == [0, 0, 0]
    (1 - values).sum().backward()
    assert hidden.grad is not None
    assert not hidden.grad.any()


class PPOByHand(ByHand):
    """PPO as the papers write it, one sequence at a time; `critic` are w and b."""

    critic: tuple[torch.Tensor, torch.Tensor]

    def update(self, scored: Any, seed: int = 0) -> None:
        with torch.no_grad():  # the critic before the first step
            self.judged = {}
            for s in scored:
                for i, completion in enumerate(s.rollout.completions):
                    values = self.values(s, completion)
                    advantages = []
                    later, value_of_next, reward = 0.0, 0.0, s.rewards[i]
                    for value in reversed(values.tolist()):
                        later = (
                            reward
                            + self.config.gamma * value_of_next
                            - value
                            + self.config.gamma * self.config.lam * later
                        )
                        reward, value_of_next = 0.0, value
                        advantages.insert(0, later)
                    self.judged[s.question.hash, i] = values, doubles(*advantages)
        everything = torch.cat([advantages for _, advantages in self.judged.values()])
        self.mean, self.deviation = doubles(0), doubles(1)
        if self.config.scale_rewards == "batch":
            self.mean, self.deviation = everything.mean(), (everything.var() + 1e-8).sqrt()
        super().update(scored, seed)

    def values(self, scored: Scored, completion: Completion) -> torch.Tensor:
        ids = ids_of(self.policy, completion)
        prompt = self.policy.lm.tokenizer.encode(scored.question.text + "\n")
        out = self.model(torch.tensor([prompt + ids]), output_hidden_states=True, use_cache=False)
        hidden = out.hidden_states[-1][0, len(prompt) - 1 : -1]
        w, b = self.critic
        return torch.stack([h @ w / h.norm() + b for h in hidden]) if ids else torch.zeros(0, dtype=torch.float64)

    def loss(self, share: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        c, losses, olds = self.config, [], iter(old)
        for s in share:
            for i, completion in enumerate(s.rollout.completions):
                old_values, raw = self.judged[s.question.hash, i]
                A = (raw - self.mean) / self.deviation
                logp = self.logps(self.model, s, completion)
                ratio = (logp - next(olds)).exp()
                policy = -torch.minimum(ratio * A, ratio.clip(1 - c.epsilon, 1 + c.epsilon_high) * A)
                if c.beta:
                    with torch.no_grad():
                        d = self.logps(self.reference, s, completion)
                    policy = policy + c.beta * ((d - logp).exp() - (d - logp) - 1)
                values, target = self.values(s, completion), raw + old_values
                held = old_values + (values - old_values).clip(-c.cliprange_value, c.cliprange_value)
                value = 0.5 * torch.maximum((values - target) ** 2, (held - target) ** 2)
                losses.append(policy + c.vf_coef * value)
        total = torch.cat(losses).sum()
        if c.loss_type == "dr_grpo":
            return total / (len(losses) * self.policy.sampling.max_completion_length)
        return total / self.tokens_per_step


def with_critic(policy: LanguagePolicy, lr: float = 1e-2, sgd: bool = False, **settings: Any) -> GRPOLearner:
    """A learner whose critic has opinions."""
    learner = make_learner(policy, lr, sgd, advantage="gae", **settings)
    assert learner.critic is not None
    perturb(learner.critic)
    if sgd:
        learner.critic.optimizer = torch.optim.SGD(learner.critic.parameters(), lr=lr)  # type: ignore[assignment]
    return learner


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"vf_coef": 0.5, "beta": 0.3},
        {"gamma": 0.9, "lam": 0.5, "scale_rewards": "batch"},
        {"loss_type": "dapo", "cliprange_value": 0.01, "vf_coef": 1.0},
    ],
)
@pytest.mark.parametrize("steps", [{}, {"num_iterations": 3, "num_minibatches": 2}])
def test_gradients_equal_those_by_hand(settings: dict[str, Any], steps: dict[str, int]) -> None:
    policy = make_policy("gpt2", double=True)
    learner = with_critic(policy, 0.1, sgd=True, **settings, **steps)
    by_hand = PPOByHand(policy, learner.config, torch.optim.SGD, 0.1)
    assert learner.critic is not None
    w, b = by_hand.critic = (
        learner.critic.head.weight.detach()[0].clone().requires_grad_(),
        learner.critic.head.bias.detach()[0].clone().requires_grad_(),
    )
    by_hand.optimizer.add_param_group({"params": [w, b]})
    perturb(policy.lm.model, by_hand.model)
    found = record(learner)
    metrics = learner.update(rollouts(), seed=3)
    by_hand.update(rollouts(), seed=3)
    assert len(found) == len(by_hand.gradients) == learner.config.num_iterations * learner.config.num_minibatches
    for actual, expected in zip(found, by_hand.gradients, strict=True):
        assert_same(actual, expected)
    assert_same(weights(learner.model), weights(by_hand.model))
    assert_same(
        {"w": learner.critic.head.weight.detach()[0], "b": learner.critic.head.bias.detach()[0]},
        {"w": w.detach(), "b": b.detach()},
    )
    values = torch.cat([values for values, _ in by_hand.judged.values()])
    returns = torch.cat([values + raw for values, raw in by_hand.judged.values()])
    assert metrics["explained_variance"] == pytest.approx(1 - ((returns - values).var() / returns.var()).item())
    if not steps:
        assert metrics["value_loss"] == pytest.approx(0.5 * ((returns - values) ** 2).mean().item(), rel=1e-4)


def test_a_critic_learns_from_groups_of_equal_rewards_too() -> None:
    policy = make_policy()
    learner = with_critic(policy)
    metrics = learner.update([DEAD])
    assert metrics["learner/steps"] == 1
    assert metrics["tokens/trained"] == 5
    assert metrics["value_loss"] > 0


def test_what_has_no_critic_says_nothing_of_one() -> None:
    metrics = make_learner(make_policy()).update(rollouts())
    assert not {"value_loss", "explained_variance"} & metrics.keys()


def test_equal_returns_have_no_variance_to_explain() -> None:
    learner = make_learner(make_policy(), advantage="gae", lam=1.0)
    assert "explained_variance" not in learner.update([DEAD])


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_step_that_is_not_finite_leaves_the_critic_as_it_was(value: float) -> None:
    policy = make_policy()
    learner = with_critic(policy)
    learner.update(rollouts())
    assert learner.critic is not None
    before = copy.deepcopy(learner.critic.state())
    model: Any = policy.lm.model
    model.lm_head.register_forward_hook(lambda _m, _i, logits: logits * value)
    assert learner.update(rollouts())["learner/steps"] == 0
    torch.testing.assert_close(learner.critic.state(), before, rtol=0, atol=0)


def test_a_saved_critic_goes_on_exactly(tmp_path: Path) -> None:
    policy = make_policy()
    learner = with_critic(policy)
    learner.update(rollouts())
    policy.save(tmp_path)
    learner.save(tmp_path)
    lm = load(str(tmp_path), CPU.device)
    resumed = make_learner(LanguagePolicy(lm, policy.sampling, CPU), advantage="gae")
    resumed.load(tmp_path)
    metrics = [each.update(rollouts()) for each in (learner, resumed)]
    assert metrics[0] == metrics[1]
    assert learner.critic is not None
    assert resumed.critic is not None
    torch.testing.assert_close(resumed.critic.state(), learner.critic.state(), rtol=0, atol=0)


def test_a_critic_comes_to_know_which_questions_are_hard() -> None:
    easy = make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS]], [1, 1])
    hard = make_scored("the lazy dog", [[40, 41, EOS], [8, EOS]], [0, 0])
    learner = make_learner(make_policy(), lr=0.0, advantage="gae", critic_learning_rate=0.05)
    found = [learner.update([easy, hard]) for _ in range(100)]
    assert found[0]["explained_variance"] == 0
    assert found[-1]["explained_variance"] > 0.9
    assert found[-1]["value_loss"] < 0.1 * found[0]["value_loss"]


def test_learning_makes_rewarded_answers_likelier() -> None:
    scored = make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS]], [1, 0])
    policy = make_policy()
    learner = make_learner(policy, lr=5e-3, advantage="gae", num_iterations=2)
    good, bad = [list(c.token_ids or ()) for c in scored.rollout.completions]
    prompt = policy.prompt_ids(scored.question)

    def margin() -> float:
        with torch.no_grad():
            logps = [plain_logprobs(policy.lm.model, prompt, answer).sum() for answer in (good, bad)]
        return float(logps[0] - logps[1])

    before = margin()
    for _ in range(10):
        learner.update([scored])
    assert margin() > before + 1


def test_the_critic_sees_what_the_policy_sees_in_every_architecture() -> None:
    for architecture in ("llama", "qwen2", "gemma3"):
        policy = make_policy(architecture, double=True)
        learner = with_critic(clone(policy))
        by_hand = PPOByHand(policy, learner.config, torch.optim.SGD, 0.0)
        assert learner.critic is not None
        head = copy.deepcopy(learner.critic.head).requires_grad_(False)
        by_hand.critic = head.weight[0], head.bias[0]
        metrics = learner.update(rollouts())
        by_hand.update(rollouts())
        values = torch.cat([values for values, _ in by_hand.judged.values()])
        returns = torch.cat([values + raw for values, raw in by_hand.judged.values()])
        expected = 1 - ((returns - values).var() / returns.var()).item()
        assert metrics["explained_variance"] == pytest.approx(expected, abs=1e-4)
