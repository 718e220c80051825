"""The update: gradients equal those worked out by hand, with plain separate passes and explicit formulas."""

from __future__ import annotations

import copy
import math
import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from tiny import (
    ARCHITECTURES,
    CPU,
    assert_same,
    clone,
    gradients,
    limit,
    make_policy,
    make_question,
    make_scored,
    plain_logprobs,
    weights,
)
from transformers.modeling_layers import GradientCheckpointingLayer

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.errors import UserError
from shoal.learn import learner as learner_module
from shoal.learn.batch import MicroBatch
from shoal.learn.learner import GRPOLearner
from shoal.learn.logprobs import Prefix
from shoal.learn.losses import make_loss
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Completion, FinishReason, Rollout, Scored

EOS = 1
FAR = 1e9
"""A gradient norm that nothing reaches."""


def rollouts() -> list[Scored]:
    """Groups of unequal size: own and foreign, ended and cut short, empty, and one without anything to learn."""
    return [
        make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS], [30, 31, 32, 33, 34], "4", "lazy fox"], [1, 0, 0.5, 1, 0]),
        make_scored("the lazy dog", [[40, 41, EOS], [8]], [0, 1]),
        make_scored("all the same", [[3, EOS], [4, 5, EOS], "6"], [1, 1, 1]),
        make_scored("yes or no?", ["yes", "no", [11, 12, 13, EOS], Completion.of("perhaps", "length")], [1, 0, 0, 0.2]),
        make_scored("say nothing", ["", Completion.of("", "length"), [77, 78, EOS]], [1, 0.3, 0]),
    ]


def ids_of(policy: LanguagePolicy, completion: Completion) -> list[int]:
    if completion.token_ids is not None:
        return list(completion.token_ids)
    ids = policy.lm.tokenizer.encode(completion.text, add_special_tokens=False)
    return [*ids, EOS] if completion.finish_reason == "stop" else list(ids)


class ByHand:
    """GRPO as the papers write it, one sequence at a time. Gradients of all steps are in `gradients`."""

    def __init__(self, policy: LanguagePolicy, config: LearnerConfig, optimizer: Callable[..., Any], lr: float) -> None:
        self.policy, self.config = clone(policy), config
        self.model: Any = self.policy.lm.model
        self.optimizer = optimizer(self.model.parameters(), lr=lr)
        self.gradients: list[dict[str, torch.Tensor]] = []

    def update(self, scored: Sequence[Scored], seed: int = 0) -> None:
        order = list(scored)
        random.Random(seed).shuffle(order)  # sums depend on it in their last digits
        with torch.no_grad():
            old = [self.logps(self.model, s, c) for s in order for c in s.rollout.completions]
        for _ in range(self.config.num_iterations):
            self.optimizer.zero_grad()
            loss = self.loss(order, old)
            if loss.requires_grad:
                loss.backward()
            self.gradients.append(gradients(self.model))
            self.optimizer.step()

    def logps(self, model: Any, scored: Scored, completion: Completion) -> torch.Tensor:
        ids = ids_of(self.policy, completion)
        prompt = self.policy.lm.tokenizer.encode(scored.question.text + "\n")
        return plain_logprobs(model, prompt, ids, self.policy.sampling.temperature) if ids else torch.zeros(0)

    def advantages(self, scored: Scored) -> torch.Tensor:
        rewards = torch.tensor(scored.rewards, dtype=torch.float64)
        advantages = rewards - rewards.mean()
        if self.config.scale_rewards == "group":
            advantages = advantages / (rewards.std(correction=1) + 1e-4)
        return advantages

    def loss(self, order: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        c, losses = self.config, []
        kind, loss = c.loss_type.partition("(")[0], make_loss(c.loss_type)
        epsilon, epsilon_high = getattr(loss, "epsilon", 0.0), getattr(loss, "epsilon_high", 0.0)
        olds = iter(old)
        for s in order:
            for completion, A in zip(s.rollout.completions, self.advantages(s), strict=True):
                logp = self.logps(self.model, s, completion)
                difference = logp - next(olds)
                ratio = (difference.mean().expand(len(logp)) if kind == "gspo" else difference).exp()
                clipped = ratio.clip(1 - epsilon, 1 + epsilon_high)
                objective = torch.where(ratio * A < clipped * A, ratio * A, clipped * A)
                if kind == "cispo":
                    objective = ratio.detach().clip(max=epsilon_high) * A * logp
                losses.append(-objective)
        N, longest = len(losses), self.policy.sampling.max_completion_length
        if kind in ("grpo", "gspo"):
            return torch.stack([loss.mean() for loss in losses if len(loss)]).sum() / N
        if kind == "dr_grpo":
            return torch.cat(losses).sum() / (N * longest)
        return torch.cat(losses).mean()


PAPER: dict[str, Any] = {"weight": "none", "baseline_shift": 0.0, "limit": 0.0}
"""Others' rollouts count as own ones."""


def make_learner(
    policy: LanguagePolicy,
    lr: float = 1e-2,
    sgd: bool = False,
    peers: dict[str, Any] | None = None,
    max_grad_norm: float = FAR,
    checkpoint_tokens: int = 10_000,
    budget: int | None = None,
    **settings: Any,
) -> GRPOLearner:
    """`peers`: settings over those of the paper."""
    said = PAPER | (peers or {})
    weight = f"{said['weight']}(baseline_shift={said['baseline_shift']}, limit={said['limit']})"
    weighing = PeersConfig(weight=weight)
    options: dict[str, Any] = {"max_grad_norm": max_grad_norm, "checkpoint_tokens": checkpoint_tokens, "budget": budget}
    learner = limit(GRPOLearner(policy, LearnerConfig(**settings), weighing, lr), **options)
    if sgd:  # linear in the gradient, where Adam would make much of what is nought but for rounding
        learner.optimizer = torch.optim.SGD(policy.lm.model.parameters(), lr=lr)
    return learner


def record(learner: GRPOLearner) -> list[dict[str, torch.Tensor]]:
    """The gradients that will be applied, one for each step."""
    found: list[dict[str, torch.Tensor]] = []
    learner.optimizer.register_step_pre_hook(lambda *_: found.append(gradients(learner.model)))
    return found


def perturb(*models: Any) -> None:
    """Moves the weights of models that are equal, alike."""
    for model in models:
        torch.manual_seed(7)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.05 * torch.randn_like(parameter))


def check_gradients(policy: LanguagePolicy, lr: float = 1e-2, **settings: Any) -> dict[str, float]:
    """Compares every step's gradient with that worked out by hand; returns the learner's metrics."""
    learner = make_learner(policy, lr, sgd=True, **settings)
    by_hand = ByHand(policy, learner.config, torch.optim.SGD, lr)
    perturb(policy.lm.model, by_hand.model)  # away from the reference
    found = record(learner)
    metrics = learner.update(rollouts(), seed=3).metrics
    by_hand.update(rollouts(), seed=3)
    assert len(found) == len(by_hand.gradients) == learner.config.num_iterations
    for actual, expected in zip(found, by_hand.gradients, strict=True):
        assert_same(actual, expected)
    assert_same(weights(learner.model), weights(by_hand.model))
    return metrics


LOSSES = ["grpo", "dr_grpo", "dapo", "gspo(epsilon=0.02, epsilon_high=0.03)", "cispo(epsilon_high=1.1)"]
"""Every `loss_type`, with the clip range at which the tests' ratios are clipped."""


@pytest.mark.slow
@pytest.mark.parametrize("scale_rewards", ["none", "group"])
@pytest.mark.parametrize("loss_type", LOSSES)
def test_gradient_equals_that_by_hand(loss_type: str, scale_rewards: str) -> None:
    settings = {"loss_type": loss_type, "scale_rewards": scale_rewards}
    check_gradients(make_policy(double=True), **settings)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradient_equals_that_by_hand_in_every_architecture(architecture: str) -> None:
    check_gradients(make_policy(architecture, double=True, temperature=0.8), scale_rewards="group")


@pytest.mark.parametrize("loss_type", LOSSES)
def test_gradients_equal_those_by_hand_where_ratios_are_clipped(loss_type: str) -> None:
    """With gpt2, all of whose arithmetic stays in float64, since large steps amplify what is lost in one."""
    settings = {"loss_type": loss_type, "num_iterations": 3}
    metrics = check_gradients(make_policy("gpt2", double=True), 0.1, **settings)
    assert (metrics["clip_ratio/low_mean"] > 0) == (not loss_type.startswith("cispo"))  # which has no least ratio
    assert metrics["clip_ratio/high_mean"] > 0


@pytest.mark.parametrize(
    "settings",
    [{}, {"loss_type": "gspo(epsilon=0.02)", "num_iterations": 2}, {"scale_rewards": "batch"}],
)
@pytest.mark.parametrize("budget", [1, 25, 60])
def test_the_token_budget_changes_nothing(budget: int, settings: dict[str, Any]) -> None:
    policy = make_policy("gpt2" if settings else "llama", double=True)
    found = []
    for tokens in (budget, 10_000):
        each = {"budget": tokens, **settings}
        learner = make_learner(clone(policy), **each)
        steps = record(learner)
        learner.update(rollouts())
        found.append(steps)
    for actual, expected in zip(*found, strict=True):
        assert_same(actual, expected, 1e-6)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_gradient_checkpointing_changes_nothing_but_what_is_kept(architecture: str) -> None:
    policy = make_policy(architecture, double=True)
    found, calls = [], []
    for above in (0, 10_000):
        learner = make_learner(clone(policy), checkpoint_tokens=above)
        count: list[int] = []
        last = [m for m in learner.model.modules() if isinstance(m, GradientCheckpointingLayer)][-1]
        norm = next(m for m in last.modules() if "norm" in type(m).__name__.lower())
        norm.register_forward_hook(lambda *_, count=count: count.append(1))
        steps = record(learner)
        learner.update(rollouts())
        found.append(steps)
        calls.append(len(count))
    for actual, expected in zip(*found, strict=True):
        assert_same(actual, expected, 1e-9)
    assert calls[0] == 2 * calls[1]


def test_only_passes_longer_than_a_micro_batch_are_checkpointed() -> None:
    learner = GRPOLearner(make_policy())
    layer = next(m for m in learner.model.modules() if isinstance(m, GradientCheckpointingLayer))
    found = []
    for tokens in (learner.token_budget, learner.token_budget + 1):
        with learner.checkpointing.of(tokens):
            found.append(layer.training)
    assert found == [False, True]
    assert not layer.training


def test_a_swarm_of_one_is_plain_grpo() -> None:
    policy = make_policy(double=True)
    learner = make_learner(policy, lr=1e-2, loss_type="grpo", scale_rewards="group")
    plain = ByHand(
        policy, learner.config, lambda parameters, lr: torch.optim.AdamW(parameters, lr, weight_decay=0), 1e-2
    )
    before = weights(policy.lm.model)
    for seed in range(2):
        for which in (learner, plain):
            which.update(answer_and_score(which.policy, seed))
    assert_same(weights(policy.lm.model), weights(plain.model))
    assert all((before[n] != w).any() for n, w in weights(policy.lm.model).items())


def answer_and_score(policy: Any, seed: int) -> list[Scored]:
    """Own rollouts, rewarded for long answers."""
    questions = [make_question("2 + 2 ="), make_question("the lazy dog jumps over")]
    groups = policy.generate(questions, 4, seed)
    return [
        Scored(Rollout(q.id, q.hash, group, "ada", 0), q, tuple(len(c.text) / 20 for c in group))
        for q, group in zip(questions, groups, strict=True)
    ]


def test_gradients_longer_than_allowed_are_scaled_down() -> None:
    policy = make_policy(double=True)
    long, short = make_learner(clone(policy)), make_learner(clone(policy), max_grad_norm=1e-3)
    (free,), (held,) = [record_update(learner) for learner in (long, short)]
    norm = torch.stack([g.norm() for g in free.values()]).norm()
    assert norm > 1e-2
    assert_same(held, {name: g * 1e-3 / norm for name, g in free.items()}, 1e-4)


def record_update(learner: GRPOLearner) -> list[dict[str, torch.Tensor]]:
    found = record(learner)
    learner.update(rollouts())
    return found


def test_own_completions_are_trained_on_as_they_were_sampled() -> None:
    """Their text may be tokenised otherwise: the tokens are the truth about what was sampled."""
    policy = make_policy()
    learner = make_learner(policy)
    metrics = learner.update([make_scored("q", [[50, 51, 52, 53, EOS], [8]], [1, 0])]).metrics
    assert metrics["tokens/trained"] == 6


def test_the_end_is_trained_only_where_a_completion_ended() -> None:
    policy = make_policy()
    for reason, extra in ((FinishReason.stop, 1), (FinishReason.length, 0)):
        texts = [Completion.of("no", reason), Completion.of("yes", reason)]
        tokens = sum(len(policy.lm.tokenizer.encode(c.text)) + extra for c in texts)
        assert make_learner(clone(policy)).update([make_scored("q", texts, [1, 0])]).metrics["tokens/trained"] == tokens


LIVE = make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS]], [1, 0])
DEAD = make_scored("all the same", [[3, EOS], [4, 5, EOS]], [1, 1])


def count_tokens(policy: LanguagePolicy) -> list[int]:
    """The size of every forward pass from now on."""
    sizes: list[int] = []
    model: Any = policy.lm.model
    model.model.embed_tokens.register_forward_hook(lambda _m, inputs, _o: sizes.append(inputs[0].numel()))
    return sizes


def test_groups_without_advantage_cost_nothing() -> None:
    policy = make_policy()
    learner = make_learner(policy)
    before, sizes = weights(policy.lm.model), count_tokens(policy)
    metrics = learner.update([DEAD, DEAD]).metrics
    assert sizes == []
    assert metrics["learner/steps"] == 0
    assert_same(weights(policy.lm.model), before, 0)
    learner.update([LIVE])
    alone = list(sizes)
    learner.update([DEAD, LIVE, DEAD])
    assert sizes == alone * 2


@pytest.mark.parametrize("loss_type", LOSSES)
def test_groups_without_advantage_count_in_the_averages(loss_type: str) -> None:
    policy = make_policy(double=True)
    found = []
    for scored in ([LIVE], [LIVE, DEAD]):
        learner = make_learner(clone(policy), loss_type=loss_type)
        steps = record(learner)
        learner.update(scored)
        found += steps
    assert_same(found[1], {name: g / 2 for name, g in found[0].items()})  # either has 2 sequences, 5 tokens


def without_memory_for(learner: GRPOLearner, tokens: int, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Backward passes of more tokens run out of memory. Gives the tokens of each pass that was tried."""
    tried: list[int] = []
    forward = learner._forward

    def limited(batch: MicroBatch, prefix: Prefix | None) -> tuple[torch.Tensor, torch.Tensor]:
        tried.append(batch.input_ids_RS.numel())
        if tried[-1] > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return forward(batch, prefix)

    monkeypatch.setattr(learner, "_forward", limited)
    return tried


def test_where_memory_runs_out_passes_get_shorter_and_the_update_is_the_same(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(learner_module, "LEAST_TOKENS", 8)
    policy = make_policy(double=True)
    whole, short = make_learner(clone(policy)), make_learner(clone(policy))
    tried = without_memory_for(short, 12, monkeypatch)
    for learner in (whole, short):
        metrics = learner.update(rollouts()).metrics
        assert metrics["learner/steps"] == 1
    assert max(tried) > 12, "memory ran out"
    assert short.skipped_steps == 0
    assert_same(weights(short.model), weights(whole.model))
    assert "memory ran out in an update: a pass has at most" in capsys.readouterr().err
    tried.clear()
    assert short.update(rollouts()).metrics["loss"] == pytest.approx(whole.update(rollouts()).metrics["loss"])
    assert max(tried) <= 12, "the next update begins with what there was room for"


def test_an_update_without_room_for_its_shortest_pass_is_left_out_but_for_the_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    first = make_learner(make_policy())
    without_memory_for(first, 0, monkeypatch)
    with pytest.raises(UserError, match="--lora-r 16"):
        first.update(rollouts())
    later = make_learner(make_policy())
    later.update(rollouts())
    before = weights(later.model)
    without_memory_for(later, 0, monkeypatch)
    metrics = later.update(rollouts()).metrics
    assert (metrics["learner/steps"], metrics["learner/skipped_steps"]) == (0, 1)
    assert_same(weights(later.model), before, 0)


@pytest.mark.parametrize("value", [math.nan, math.inf])
@pytest.mark.parametrize("where", ["loss", "gradient"])
def test_a_step_that_is_not_finite_is_skipped_and_leaves_no_trace(where: str, value: float) -> None:
    policy = make_policy()
    learner = make_learner(policy)
    healthy = make_learner(clone(policy))
    for each in (learner, healthy):
        each.update(rollouts())
    before, state = weights(policy.lm.model), copy.deepcopy(learner.optimizer.state_dict())
    model: Any = policy.lm.model
    if where == "loss":
        broken = model.lm_head.register_forward_hook(lambda _m, _i, logits: logits * value)
    else:
        broken = model.model.layers[0].mlp.up_proj.weight.register_hook(lambda g: torch.full_like(g, value))
    metrics = learner.update(rollouts()).metrics
    assert metrics["learner/steps"] == 0
    assert metrics["learner/skipped_steps"] == learner.skipped_steps == 1
    assert_same(weights(policy.lm.model), before, 0)
    torch.testing.assert_close(learner.optimizer.state_dict(), state, rtol=0, atol=0)
    broken.remove()
    for each in (learner, healthy):
        each.update(rollouts())
    assert_same(weights(learner.model), weights(healthy.model), 0)


@pytest.mark.parametrize("loss_type", LOSSES)
def test_an_update_with_nothing_in_it_does_nothing(loss_type: str) -> None:
    policy = make_policy()
    settings = {"loss_type": loss_type, "num_iterations": 2}
    learner = make_learner(policy, **settings)
    before = weights(policy.lm.model)
    empty = Completion.of("", "length")
    unread = make_scored("a question of another node's longer context" * 20, ["a", "b"], [1, 0]).as_peer()
    for scored in ([], [make_scored("q", [empty, empty], [1, 0])], [unread]):
        assert learner.update(scored).metrics["learner/steps"] == 0
    assert_same(weights(policy.lm.model), before, 0)


def test_a_saved_learner_goes_on_exactly(tmp_path: Path) -> None:
    policy = make_policy()
    settings: dict[str, Any] = {"num_iterations": 2}
    learner = make_learner(policy, **settings)
    learner.update(rollouts(), seed=1)
    learner.skipped_steps = 3
    policy.save(tmp_path)
    learner.save(tmp_path)
    resumed = make_learner(LanguagePolicy(load(str(tmp_path), CPU.device), policy.sampling, CPU), **settings)
    resumed.load(tmp_path)
    for each in (learner, resumed):
        each.update(rollouts(), seed=2)
    assert_same(weights(resumed.model), weights(learner.model), 0)
    assert resumed.skipped_steps == 3


def test_a_loaded_learner_has_the_learning_rate_of_its_settings(tmp_path: Path) -> None:
    learner = make_learner(make_policy(), lr=1e-3)
    learner.update(rollouts(), seed=1)
    learner.save(tmp_path)
    resumed = make_learner(make_policy(), lr=2e-3)
    resumed.load(tmp_path)
    assert {group["lr"] for group in resumed.optimizer.param_groups} == {2e-3}


def test_the_same_seed_gives_the_same_weights() -> None:
    policy = make_policy()
    results = []
    for _ in range(2):
        learner = make_learner(clone(policy))
        learner.update(rollouts(), seed=1)
        results.append(torch.cat([w.flatten() for w in weights(learner.model).values()]))
    assert torch.equal(results[0], results[1])


def test_dropout_is_off_in_the_update() -> None:
    policy = make_policy("gpt2", double=True, resid_pdrop=0.5, embd_pdrop=0.5, attn_pdrop=0.5)
    check_gradients(policy, num_iterations=2)


def test_frozen_weights_stay() -> None:
    policy = make_policy()
    model: Any = policy.lm.model
    model.model.embed_tokens.requires_grad_(False)
    before = weights(model)
    make_learner(policy).update(rollouts())
    after = weights(model)
    assert torch.equal(after["model.embed_tokens.weight"], before["model.embed_tokens.weight"])
    assert not torch.equal(after["lm_head.weight"], before["lm_head.weight"])


def test_learning_makes_rewarded_answers_likelier() -> None:
    policy = make_policy()
    learner = make_learner(policy, lr=5e-3)
    prompt = policy.prompt_ids(LIVE.question)
    good, bad = [list(c.token_ids or ()) for c in LIVE.rollout.completions]

    def margin() -> float:
        with torch.no_grad():
            return float(
                plain_logprobs(policy.lm.model, prompt, good).sum() - plain_logprobs(policy.lm.model, prompt, bad).sum()
            )

    before = margin()
    for _ in range(5):
        learner.update([LIVE])
    assert margin() > before + 1


def test_metrics_say_what_happened() -> None:
    policy = make_policy(double=True)
    learner = make_learner(policy)
    reference = ByHand(policy, learner.config, torch.optim.SGD, 0.0)
    reference.update([LIVE, DEAD])
    metrics = learner.update([LIVE, DEAD]).metrics
    assert metrics["tokens/trained"] == 5, "those of the live group"
    assert 0 < metrics["entropy"] < math.log(300)
    norm = torch.stack([g.norm() for g in reference.gradients[0].values()]).norm().item()
    assert metrics["grad_norm"] == pytest.approx(norm, rel=1e-5)
    # advantages ±0.5 at ratio 1, over the 3 and the 2 tokens of LIVE, in 4 sequences of at most 12 tokens
    assert metrics["loss"] == pytest.approx(-(0.5 * 3 - 0.5 * 2) / (4 * 12), rel=1e-5)
    assert all(math.isfinite(value) for value in metrics.values())
