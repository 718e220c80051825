"""What other nodes' completions count: weights worked out by hand, and what no lie can change."""

from __future__ import annotations

import dataclasses
import math
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from test_learner import ByHand, make_learner, record
from tiny import CPU, assert_same, clone, limit, make_policy, make_scored, plain_logprobs, weights

from shoal import rollout
from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.advantages import advantages
from shoal.learn.learner import GRPOLearner
from shoal.learn.peers import (
    peer_metrics,
    peer_weights,
    running_mean,
    sampled_nll,
)
from shoal.learn.weights import make_weight
from shoal.learn.weights.base import TOPR, NoWeight, Weight
from shoal.parallel.ranks import Ranks
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Part, Scored

EOS = 1
METHODS = ("none", "topr")
H = 1.5
"""Nats for each token of own completions, in the examples."""


def weigh(
    method: str,
    logps: Sequence[Sequence[float]],
    advantages: Sequence[float],
    own_nll: float | None = H,
) -> list[list[float]]:
    """`peer_weights` of completions, one after another."""
    flat = torch.tensor([v for each in logps for v in each], dtype=torch.float64)
    lengths = [len(each) for each in logps]
    which = torch.arange(len(logps)).repeat_interleave(torch.tensor(lengths))
    signs = torch.tensor(advantages, dtype=torch.float64)[which]
    found = peer_weights(make_weight(method), flat, own_nll, signs, which)
    return [part.tolist() for part in found.split(lengths)]


def approx(values: Any) -> Any:
    return [pytest.approx(each, rel=1e-12, abs=1e-12) for each in values]


PI = [[-1.0, -2.0], [-3.0], [-0.5, -0.5, -2.0]]


def test_without_a_method_all_count_1() -> None:
    assert weigh("none", PI, [1, -1, 0]) == [[1, 1], [1], [1, 1, 1]]


def test_topr_weighs_failures_by_the_ratio_of_the_whole_completion() -> None:
    # -3 + 2 h = 0 of two tokens, -3 + h = -1.5 of one, -3 + 3 h = 1.5 of three
    assert weigh("topr", PI, [-1, -1, -1]) == approx([[1.0] * 2, [math.exp(-1.5)], [1.0] * 3])
    assert weigh("topr", PI, [-1, -1, -1], own_nll=1.0) == approx([[math.exp(-1)] * 2, [math.exp(-2)], [1.0] * 3])
    assert weigh("topr", PI, [0.5, 0.0, 2]) == approx([[1.0] * 2, [1.0], [1.0] * 3])


@pytest.mark.parametrize("method", METHODS)
def test_nothing_is_held_against_anybody_before_there_is_something_to_compare_with(method: str) -> None:
    assert weigh(method, PI, [1, -1, 1], own_nll=None) == [[1, 1], [1], [1, 1, 1]]


completion = st.lists(st.floats(-(2.0**127), 0, width=32), min_size=1, max_size=6)


@given(
    st.lists(st.tuples(completion, st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=5),
    st.sampled_from(METHODS),
    st.none() | st.floats(0, 50),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_are_in_0_to_1_whatever_the_likelihoods(
    drawn: list[tuple[list[float], float]], method: str, own_nll: float | None, dtype: torch.dtype
) -> None:
    which = torch.arange(len(drawn)).repeat_interleave(torch.tensor([len(logps) for logps, _ in drawn]))
    logps = torch.tensor([pi for logps, _ in drawn for pi in logps], dtype=dtype)
    signs = torch.tensor([sign for _, sign in drawn], dtype=dtype)[which]
    found = peer_weights(make_weight(method), logps, own_nll, signs, which)
    assert found.isfinite().all()
    assert (found >= 0).all()
    assert (found <= 1).all()


def test_own_likelihood_is_a_running_mean_over_updates() -> None:
    assert running_mean(None, None) is None
    assert running_mean(None, 2.0) == 2.0
    assert running_mean(2.0, 3.0) == pytest.approx(2.1)
    assert running_mean(2.0, None) == running_mean(2.0, math.nan) == running_mean(2.0, math.inf) == 2.0


def test_metrics_by_hand() -> None:
    of_others = [
        (0.5, 1.0, 2.0),
        (-0.5, 0.5, 4.0),
        (0.5, 0.0, 9.0),
        (0.0, 0.7, 1.0),
    ]
    assert peer_metrics(of_others, 1.0) == pytest.approx(
        {
            "peers/ess": 1.5**2 / (3 * 1.25),
            "peers/weight": 0.5,
            "peers/nll_gap": (1 + 3 + 8 + 0) / 4,
        }
    )
    assert peer_metrics([(1.0, 0.0, 2.0)], 1.0)["peers/ess"] == 0
    assert peer_metrics([], 1.0) == {}
    without = peer_metrics([(1.0, 1.0, 2.0)], None)
    assert without == {"peers/ess": 1.0, "peers/weight": 1.0}


# The whole update, against gradients worked out one sequence at a time.


def from_node(scored: Scored, node: str, **fields: Any) -> Scored:
    made = msgspec.structs.replace(scored.rollout, node=node)
    return msgspec.structs.replace(scored, rollout=made, from_peer=node != "ada", **fields)


def told(text: str, logprobs: Sequence[float]) -> rollout.Completion:
    """With its maker's own log-probabilities, which change nothing here."""
    return rollout.Completion((Part(text),), logprobs=tuple(logprobs))


def sampled(ids: Sequence[int], logprobs: Sequence[float]) -> rollout.Completion:
    return rollout.Completion((Part("sampled"),), token_ids=tuple(ids), logprobs=tuple(logprobs))


def mixed(own_logprobs: bool = True) -> list[Scored]:
    """Own groups, one of them dead, and others'."""
    first = [sampled([5, 9, EOS], [-5.0, -6.0, -5.5]), sampled([7, EOS], [-6.0, -5.0])]
    own = make_scored("2 + 2 =", first if own_logprobs else [[5, 9, EOS], [7, EOS]], [1, 0])
    dead = make_scored("all the same", [sampled([3, EOS], [-4.0, -5.0])] if own_logprobs else [[3, EOS]], [1])
    ada = make_scored("yes or no?", [told("no", [-8.0] * 3), "fox", "lazy", "dog"], [0, 1, 0.5, 0])
    bob = make_scored("the lazy dog", ["yes", "perhaps", "fox over"], [0, 1, 0])
    late = make_scored("say something", ["dog", "2 + 2"], [0, 0])
    return [own, dead, from_node(ada, "bea"), from_node(bob, "bob"), from_node(late, "cy")]


class Externally(ByHand):
    """The update by hand, with others' completions weighed as the papers say, each by itself."""

    own_nll = math.nan
    peers = PeersConfig()
    peer_weight: Weight = NoWeight()
    seen: list[tuple[str, float, float, float, int]]
    """node, advantage, weight, nats for each token, and tokens, of all that was trained."""

    def advantages(self, scored: Scored) -> torch.Tensor:
        advantages = super().advantages(scored)
        if scored.baseline is not None:
            advantages = torch.tensor(scored.rewards, dtype=torch.float64) - scored.baseline
        if scored.from_peer and scored.has_signal:
            advantages = advantages - self.peer_weight.baseline_shift
        return advantages

    def weight(self, pi: torch.Tensor, A: float) -> float:
        """One completion's: topr's, by the ratio of all of it."""
        ratio = float((pi.sum() + self.own_nll * len(pi)).exp())
        return min(1.0, ratio) if isinstance(self.peer_weight, TOPR) and A < 0 else 1.0

    def loss(self, order: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        longest, losses = self.policy.sampling.max_completion_length, []
        olds = iter(old)
        self.seen = []
        for s in order:
            befores = [next(olds) for _ in s.rollout.completions]
            for completion, A, before in zip(s.rollout.completions, self.advantages(s), befores, strict=True):
                logp = self.logps(self.model, s, completion)
                ratio = (logp - before).exp()
                clipped = ratio.clip(1 - 0.2, 1 + 0.28)
                loss = -torch.min(ratio * A, clipped * A)
                w = self.weight(before, float(A)) if s.from_peer else 1.0
                losses.append(loss * w)
                if s.has_signal:
                    one = (s.rollout.node, float(A), w, float(-before.mean()), len(before))
                    self.seen.append(one)
        return torch.cat(losses).sum() / (len(losses) * longest)


OWN = -(-5.0 - 6.0 - 5.5 - 6.0 - 5.0 - 4.0 - 5.0) / 7
"""Nats for each token of what `mixed` has of one's own."""
CASES: dict[str, dict[str, Any]] = {
    "none": {},
    "topr": {"peers": {"weight": "topr"}},
    "topr, split": {"peers": {"weight": "topr"}, "budget": 8},
    "shift": {"peers": {"weight": "topr", "baseline_shift": -0.1}},
    "topr, steps": {"peers": {"weight": "topr"}, "num_iterations": 3},
}


def by_hand(learner: GRPOLearner) -> Externally:
    made = Externally(learner.policy, learner.config, torch.optim.SGD, 1e-2)  # type: ignore[arg-type]
    made.peers, made.peer_weight = learner.peers, learner.peer_weight
    return made


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_metrics_equal_those_by_hand(case: str) -> None:
    policy = make_policy("gpt2", double=True)
    learner = make_learner(policy, sgd=True, **CASES[case])
    expected = by_hand(learner)
    expected.own_nll = OWN
    found = record(learner)
    result = learner.update(mixed(), seed=3)
    metrics = result.metrics
    expected.update(mixed(), seed=3)
    assert learner.own_nll == pytest.approx(OWN)
    assert len(found) == len(expected.gradients)
    for ours, theirs in zip(found, expected.gradients, strict=True):
        assert_same(ours, theirs, 1e-6)
    seen = [each for each in expected.seen if each[0] != "ada"]
    w = [each[2] for each in seen]
    assert metrics["peers/ess"] == pytest.approx(sum(w) ** 2 / (len(w) * sum(x * x for x in w)), rel=1e-6)
    assert metrics["peers/weight"] == pytest.approx(sum(w) / len(w), rel=1e-6)
    assert metrics["peers/nll_gap"] == pytest.approx(sum(nll - OWN for _, _, _, nll, _ in seen) / len(seen))
    sizes = {
        node: sum(abs(A) * w * n for m, A, w, _, n in expected.seen if m == node) for node in ("ada", "bea", "bob")
    }
    shares = {node: pytest.approx(size / sum(sizes.values()), rel=1e-6) for node, size in sizes.items()}
    assert result.gradient_shares == shares


def test_the_cases_weigh_something() -> None:
    """Or the test before would show nothing."""
    weights = {}
    for case, chosen in CASES.items():
        weights[case] = make_learner(make_policy("gpt2", double=True), **chosen).update(mixed()).metrics["peers/weight"]
    assert weights.pop("none") == 1
    assert all(0 < weight < 1 for weight in weights.values()), weights


def test_a_split_group_is_seen_as_one() -> None:
    chosen: dict[str, Any] = CASES["topr, split"]
    learner = make_learner(make_policy("gpt2", double=True), **chosen)
    whole = make_learner(make_policy("gpt2", double=True), **chosen | {"budget": 1000})
    both = [each.update(mixed(), seed=3) for each in (learner, whole)]
    split, at_once = (dict(each.metrics) for each in both)
    for cost in ("tokens/read", "flops/learn"):
        assert split.pop(cost) > at_once.pop(cost)  # the prompt is read again
    assert split == pytest.approx(at_once, rel=1e-6)


@pytest.mark.parametrize("lie", [-1e30, 0.0, 5.0, math.inf, math.nan])
def test_what_makers_say_of_likelihoods_changes_nothing(lie: float) -> None:
    policy = make_policy()
    peers = {"weight": "topr"}
    results = []
    for no, fox in ((told("no", [lie] * 2), told("fox", [lie, -1.0])), ("no", "fox")):
        learner = make_learner(clone(policy), peers=peers)
        results.append(learner.update([from_node(make_scored("yes or no?", [no, fox], [0, 1]), "bea"), *mixed()]))
    assert results[0] == results[1]
    assert results[0].metrics["learner/skipped_steps"] == 0


def test_without_any_setting_foreign_rollouts_count_as_own_ones() -> None:
    policy = make_policy(double=True)
    results = []
    for own in (False, True):
        learner = make_learner(clone(policy), num_iterations=2)
        scored = [msgspec.structs.replace(s, from_peer=False) if own else s for s in mixed()]
        found = learner.update(scored, seed=5).metrics
        results.append(({n: v for n, v in found.items() if not n.startswith("peers/")}, weights(learner.model)))
    assert results[0][0] == results[1][0]
    assert_same(results[0][1], results[1][1], 0)


def test_own_likelihood_is_learned_from_what_is_trained_where_nobody_tells() -> None:
    """As with an engine that keeps no log-probabilities; the first update then has nothing to go by."""
    learner = make_learner(make_policy(double=True), lr=0.0, peers={"weight": "topr"})
    scored = [mixed(own_logprobs=False)[0], from_node(make_scored("the lazy dog", ["yes", "no"], [0, 1]), "bob")]
    assert sampled_nll(scored) is None
    first = learner.update(scored).metrics
    assert first["peers/weight"] == 1
    assert "peers/nll_gap" not in first
    assert learner.own_nll is not None
    answers = [list(c.token_ids or ()) for c in scored[0].rollout.completions]
    prompt = learner.policy.prompt_ids(scored[0].question)
    logps = torch.cat([plain_logprobs(learner.model, prompt, answer) for answer in answers])
    assert learner.own_nll == pytest.approx(-logps.mean().item(), rel=1e-6)
    prompt = learner.policy.prompt_ids(scored[1].question)
    theirs = [
        plain_logprobs(learner.model, prompt, learner.policy.completion_ids(c)) for c in scored[1].rollout.completions
    ]
    gap = sum(-logp.mean().item() for logp in theirs) / 2 - learner.own_nll
    assert learner.update(scored).metrics["peers/nll_gap"] == pytest.approx(gap, rel=1e-6)


def test_a_saved_learner_knows_how_likely_its_own_are(tmp_path: Path) -> None:
    policy = make_policy()
    chosen: dict[str, Any] = {"peers": {"weight": "topr"}}
    learner = make_learner(policy, **chosen)
    learner.update(mixed(), seed=1)
    policy.save(tmp_path)
    learner.save(tmp_path)
    resumed = make_learner(LanguagePolicy(load(str(tmp_path), CPU.device), policy.sampling, CPU), **chosen)
    resumed.load(tmp_path)
    assert resumed.own_nll == learner.own_nll
    assert resumed.update(mixed()[2:], seed=2) == learner.update(mixed()[2:], seed=2)


def test_a_solved_group_is_learned_from_against_its_baseline() -> None:
    policy = make_policy("gpt2", double=True)
    solved = from_node(make_scored("the lazy dog", ["yes", "fox"], [1, 1]), "bea", baseline=0.25)
    learner = make_learner(policy, sgd=True, peers={"baseline_shift": -0.05})
    expected = by_hand(learner)
    found = record(learner)
    learner.update([solved])
    expected.update([solved])
    assert_same(found[0], expected.gradients[0], 1e-6)
    beyond = msgspec.structs.replace(solved, baseline=1.0)
    assert make_learner(policy).update([beyond]).metrics["learner/steps"] == 0
    assert advantages([[1, 1]], "none", [0.25], [-0.05]) == [pytest.approx([0.8, 0.8])]


def test_dead_groups_get_nothing_from_the_shift() -> None:
    learner = make_learner(make_policy(), peers={"baseline_shift": -0.2})
    metrics = learner.update(mixed()[4:]).metrics
    assert metrics["loss"] == pytest.approx(0, abs=1e-6)
    assert "peers/ess" not in metrics


class Paired:
    """Two ranks in two threads, which meet where ranks meet."""

    def __init__(self) -> None:
        self.barrier, self.values = threading.Barrier(2, timeout=60), [None, None]

    def each(self, rank: int, value: Any) -> list[Any]:
        self.values[rank] = value
        self.barrier.wait()
        found = list(self.values)
        self.barrier.wait()
        return found


@dataclasses.dataclass(frozen=True)
class PairedRanks(Ranks):
    pair: Paired = dataclasses.field(default_factory=Paired)

    def each(self, value: Any) -> list[Any]:
        return self.pair.each(self.rank, value)

    def add(self, tensors: Sequence[torch.Tensor]) -> None:
        for mine in tensors:
            both = self.each(mine.detach().clone())
            with torch.no_grad():
                mine.copy_(both[0] + both[1])


def on_two_ranks(call: Callable[[Ranks], Any]) -> list[Any]:
    pair, results = Paired(), [None, None]

    def go(rank: int) -> None:
        results[rank] = call(PairedRanks(rank, 2, pair=pair))

    threads = [threading.Thread(target=go, args=(rank,)) for rank in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


@pytest.mark.parametrize("own_logprobs", [True, False])
@pytest.mark.parametrize("iterations", [1, 2])
def test_two_ranks_do_what_one_does(iterations: int, own_logprobs: bool) -> None:
    policy = make_policy("gpt2", double=True)
    config = LearnerConfig(num_iterations=iterations)

    def learn(ranks: Ranks) -> Any:
        learner = limit(GRPOLearner(clone(policy), config, PeersConfig(), 1e-2, ranks), budget=12)
        found = [learner.update(mixed(own_logprobs), seed) for seed in range(2)]
        return found, learner.own_nll, weights(learner.model)

    expected = learn(Ranks())
    for results, own_nll, found in on_two_ranks(learn):
        assert own_nll == pytest.approx(expected[1], rel=1e-9)
        for ours, theirs in zip(results, expected[0], strict=True):
            for part in ("metrics", "gradient_shares"):
                assert getattr(ours, part) == pytest.approx(getattr(theirs, part), rel=1e-5, abs=1e-9)
        assert_same(found, expected[2], 1e-5)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(5)), st.sampled_from([1, 20, 1000]))
def test_the_order_of_rollouts_and_the_token_budget_change_no_weight(order: list[int], budget: int) -> None:
    scored = mixed()
    chosen: dict[str, Any] = {"lr": 0.0, "peers": {"weight": "topr"}}
    found = make_learner(POLICY, **chosen, budget=budget).update([scored[i] for i in order])
    expected = make_learner(POLICY, **chosen).update(scored)
    for name in ("peers/ess", "peers/weight", "peers/nll_gap", "grad_norm"):
        assert found.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-5)
    assert found.gradient_shares == pytest.approx(expected.gradient_shares, rel=1e-5)


POLICY = make_policy(double=True)
