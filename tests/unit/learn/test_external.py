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
from test_learner import ByHand, ids_of, make_learner, record
from tiny import CPU, assert_same, clone, gradients, make_policy, make_scored, plain_logprobs, weights

from shoal.learn.advantages import advantages
from shoal.learn.batch import split
from shoal.learn.external import Found, balanced_weights, external_metrics, external_weights, running_mean, sampled_nll
from shoal.parallel.ranks import Ranks
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.rollout import Completion, FinishReason, Part, Scored

EOS = 1
METHODS = ("none", "topr", "mask", "tis", "mis", "luffy")
NAN = math.nan
H = 1.5
"""Nats for each token of own completions, in the examples."""


def weigh(
    method: str,
    logps: Sequence[Sequence[float]],
    behaviour: Sequence[Sequence[float] | None],
    advantages: Sequence[float],
    own_nll: float = H,
    gate: float = 0.0,
    groups: Sequence[int] | None = None,
    missing: float = 0.0,
) -> list[list[float]]:
    """`external_weights` of completions, one after another; each is a group of its own without `groups`."""
    told = [[NAN] * len(p) if mu is None else list(mu) for p, mu in zip(logps, behaviour, strict=True)]
    flat, mus = (torch.tensor([v for each in values for v in each], dtype=torch.float64) for values in (logps, told))
    lengths = [len(each) for each in logps]
    which = torch.arange(len(logps)).repeat_interleave(torch.tensor(lengths))
    signs = torch.tensor(advantages, dtype=torch.float64)[which]
    group = which if groups is None else torch.tensor(groups)[which]
    missing_G = torch.full((8,), missing, dtype=torch.float64)
    found = external_weights(method, gate, flat, mus, torch.full_like(flat, own_nll), signs, which, group, missing_G)
    return [part.tolist() for part in found.split(lengths)]


def approx(values: Any) -> Any:
    return [pytest.approx(each, rel=1e-12, abs=1e-12) for each in values]


PI = [[-1.0, -2.0], [-3.0], [-0.5, -0.5, -2.0]]


def test_without_a_method_all_count_1() -> None:
    assert weigh("none", PI, [None, [-1.0], None], [1, -1, 0]) == [[1, 1], [1], [1, 1, 1]]


def test_topr_weighs_failures_by_the_ratio_of_the_whole_completion() -> None:
    # known: log rho = (-1 + 0.5) + (-2 + 1) = -1.5, and -3 + 4 = 1; unknown: -3 + 3 h = 1.5, of 3 tokens
    found = weigh("topr", PI, [[-0.5, -1.0], [-4.0], None], [-1, -1, -1])
    assert found == approx([[math.exp(-1.5)] * 2, [1.0], [1.0] * 3])
    # unknown: -3 + 2 h = 0 of two tokens, and -3 + h = -1.5 of one
    assert weigh("topr", PI, [None] * 3, [-1, -1, -1]) == approx([[1.0] * 2, [math.exp(-1.5)], [1.0] * 3])
    assert weigh("topr", PI, [[-0.1, -0.1], None, None], [0.5, 0.0, 2]) == approx([[1.0] * 2, [1.0], [1.0] * 3])


def test_mask_leaves_out_failures_that_have_become_unlikely() -> None:
    # mean log(mu / pi): (0.5 + 1) / 2 = 0.75; 0.5, which is the limit; unknown: 1 - h = -0.5
    found = weigh("mask", PI, [[-0.5, -1.0], [-2.5], None], [-1, -1, -1])
    assert found == [[0, 0], [1], [1, 1, 1]]
    assert weigh("mask", PI, [[-0.5, -1.0], None, None], [1, -1, -1]) == [[1, 1], [0], [1, 1, 1]]  # 3 - h = 1.5


def test_tis_truncates_each_ratio_at_1_and_takes_the_mean_where_nothing_is_known() -> None:
    found = weigh("tis", PI, [[-0.5, -3.0], None, None], [1, -1, 1])
    assert found == approx([[math.exp(-0.5), 1.0], [math.exp(-1.5)], [1.0] * 3])
    assert weigh("tis", [[-1.0, -3.0]], [None], [1]) == approx([[math.exp(-0.5)] * 2])


def test_mis_leaves_out_ratios_beyond_a_half_and_2() -> None:
    logps = [[-1.0, -1.0, -1.0, -1.0, -1.0]]
    at = [-1.0 + math.log(ratio) for ratio in (0.6, 1.0, 1.9)]  # mu, of ratios 1 / 0.6, 1 and 1 / 1.9
    found = weigh("mis", logps, [[*at, -1.0 + math.log(2.1), -1.0 + math.log(0.45)]], [1])
    assert found == approx([[1.0, 1.0, 1 / 1.9, 0.0, 0.0]])
    # unknown: log rho = h - 2 = -0.5, inside; h - 3 = -1.5 and h - 0.5 = 1, outside
    assert weigh("mis", [[-1.0, -3.0], [-3.0], [-0.5]], [None] * 3, [1, -1, 1]) == approx(
        [[math.exp(-0.5)] * 2, [0.0], [0.0]]
    )


@pytest.mark.parametrize("logp", [-20.0, -3.0, math.log(0.1), -0.5, -1e-3])
def test_luffy_is_the_slope_of_p_over_p_plus_a_tenth(logp: float) -> None:
    # d/dx e^x / (e^x + g) = e^x / (e^x + g) - e^2x / (e^x + g)^2 = g p / (p + g)^2
    p = math.exp(logp)
    ((by_formula,),) = weigh("luffy", [[logp]], [None], [1])
    assert by_formula == pytest.approx(0.1 * p / (p + 0.1) ** 2, rel=1e-12)
    x = torch.tensor(logp, dtype=torch.float64, requires_grad=True)
    (x.exp() / (x.exp() + 0.1)).backward()
    assert x.grad is not None
    assert by_formula == pytest.approx(x.grad.item(), rel=1e-12)
    assert weigh("luffy", [[logp]], [[-0.1]], [-1]) == [[by_formula]]
    assert by_formula <= 0.25


@pytest.mark.parametrize("method", METHODS)
def test_the_gate_leaves_out_successes_less_likely_than_own_ones(method: str) -> None:
    free = weigh(method, PI, [None] * 3, [1, 1, 1])
    assert weigh(method, PI, [None] * 3, [1, 1, 1], gate=1.0) == [free[0], [0], free[2]]  # gaps 0, 1.5 and -0.5
    assert weigh(method, PI, [None] * 3, [1, 1, 1], gate=1.6) == free
    failed = weigh(method, PI, [None] * 3, [-1, -1, 0])
    assert weigh(method, PI, [None] * 3, [-1, -1, 0], gate=0.1) == failed


@pytest.mark.parametrize("method", METHODS[:5])
def test_nothing_is_held_against_anybody_before_there_is_something_to_compare_with(method: str) -> None:
    assert weigh(method, PI, [None] * 3, [1, -1, 1], own_nll=NAN, gate=0.1) == [[1, 1], [1], [1, 1, 1]]


def test_a_groups_failures_count_as_much_as_its_successes_came_through() -> None:
    """Or whoever's successes are all gated has the failures alone to teach."""
    logps = [[-1.0, -1.0], [-1.0], [-9.0], [-9.0, -9.0], [-1.0]]
    advantages = [0.25, -0.75, 0.5, 0.75, -0.75]
    found = weigh("none", logps, [None] * 5, advantages, gate=2.0, groups=[7, 7, 7, 3, 3])
    assert found == approx([[1, 1], [1 / 3], [0], [0, 0], [0]])
    assert weigh("none", logps, [None] * 5, advantages, groups=[7, 7, 7, 3, 3]) == [[1, 1], [1], [1], [1, 1], [1]]
    missed = weigh("none", logps, [None] * 5, advantages, gate=2.0, groups=[7, 7, 7, 3, 3], missing=0.25)
    assert missed == approx([[1, 1], [1 / 4], [0], [0, 0], [0]])  # what is not trained on did not
    without = weigh("none", logps, [None] * 5, [-1.0] * 5, gate=2.0, groups=[7, 7, 7, 3, 3])
    assert without == [[1, 1], [1], [1], [1, 1], [1]]  # no success, and nothing gated


def test_an_unknown_method_is_an_error() -> None:
    with pytest.raises(ValueError, match="sapo"):
        weigh("sapo", PI, [None] * 3, [1, 1, 1])


likelihoods = st.floats(-(2.0**127), 0, width=32)
completion = st.lists(st.tuples(likelihoods, st.floats(-100, 0, width=32)), min_size=1, max_size=6)


@given(
    st.lists(st.tuples(completion, st.booleans(), st.sampled_from([-1.0, 0.0, 1.0])), min_size=1, max_size=5),
    st.sampled_from(METHODS),
    st.sampled_from([0.0, 0.5, 3.0]),
    st.one_of(st.just(NAN), st.floats(0, 50)),
    st.sampled_from([torch.float32, torch.float64]),
)
def test_weights_are_in_0_to_1_whatever_the_likelihoods(
    drawn: list[tuple[list[tuple[float, float]], bool, float]],
    method: str,
    gate: float,
    own_nll: float,
    dtype: torch.dtype,
) -> None:
    lengths = torch.tensor([len(pairs) for pairs, _, _ in drawn])
    which = torch.arange(len(drawn)).repeat_interleave(lengths)
    logps = torch.tensor([pi for pairs, _, _ in drawn for pi, _ in pairs], dtype=dtype)
    told = torch.tensor([mu if known else NAN for pairs, known, _ in drawn for _, mu in pairs], dtype=dtype)
    signs = torch.tensor([sign for _, _, sign in drawn], dtype=dtype)[which]
    group = which // 2
    missing = torch.zeros(len(drawn), dtype=dtype)
    found = external_weights(method, gate, logps, told, torch.full_like(logps, own_nll), signs, which, group, missing)
    assert found.isfinite().all()
    assert (found >= 0).all()
    assert (found <= 1).all()


def test_sources_are_averaged_by_themselves() -> None:
    lengths, foreign = [3, 5, 2, 4, 6], [False, False, False, True, True]
    counted = [True, True, False, True, True]
    share, tokens = 0.25, (8.0, 10.0)
    of = {
        name: balanced_weights(lengths, foreign, counted, share, name, 12, tokens)
        for name in ("grpo", "dr_grpo", "dapo")
    }
    assert of["grpo"] == pytest.approx([0.25 / 6, 0.25 / 10, 0, 0.75 / 8, 0.75 / 12])
    assert of["dr_grpo"] == pytest.approx([0.25 / 24, 0.25 / 24, 0, 0.75 / 24, 0.75 / 24])
    assert of["dapo"] == pytest.approx([0.25 / 8, 0.25 / 8, 0, 0.75 / 10, 0.75 / 10])
    # nothing of one's own that counts: others have their share, and no more
    assert balanced_weights([2, 4], [False, True], [False, True], share, "grpo", 12, (0, 4)) == [0, 0.75 / 4]


@given(st.lists(st.tuples(st.integers(0, 12), st.booleans(), st.booleans()), max_size=12), st.floats(0, 1))
def test_a_source_that_counts_has_its_share_and_no_other(drawn: list[tuple[int, bool, bool]], share: float) -> None:
    lengths, foreign, counted = ([each[i] for each in drawn] for i in range(3))
    found = balanced_weights(lengths, foreign, counted, share, "bnpo", 12, (0, 0))  # type: ignore[arg-type]
    for source, part in ((False, share), (True, 1 - share)):
        mass = sum(w * n for w, n, f, _ in zip(found, lengths, foreign, counted, strict=True) if f == source)
        tokens = sum(n for n, f, c in drawn if f == source and c)
        assert mass == pytest.approx(part if tokens else 0, abs=1e-9)
    assert all(w == 0 for w, c in zip(found, counted, strict=True) if not c)


def test_own_likelihood_is_a_running_mean_over_updates() -> None:
    assert running_mean(None, None) is None
    assert running_mean(None, 2.0) == 2.0
    assert running_mean(2.0, 3.0) == pytest.approx(2.1)
    assert running_mean(2.0, None) == running_mean(2.0, NAN) == running_mean(2.0, math.inf) == 2.0


def test_metrics_by_hand() -> None:
    of_others = [
        Found("bea", 1.0, 2.0, 0.5),
        Found("bea", 0.5, 4.0, -0.5),
        Found("eve", 0.0, 9.0, 0.5),
        Found("eve", 0.7, 1.0, 0.0),
    ]
    found = external_metrics(of_others, 1.0, 5.0)
    assert found == pytest.approx(
        {
            "external/ess": 1.5**2 / (3 * 1.25),
            "external/weight": 0.5,
            "external/gated": 0.5,
            "gated/from/bea": 0.0,
            "gated/from/eve": 1.0,
            "external/nll_gap": (1 + 3 + 8 + 0) / 4,
        }
    )
    shifted = [Found("eve", 0.0, 9.0, 0.9), *[Found("eve", 1.0, 1.0, 0.01)] * 9]  # failures above a lower baseline
    assert external_metrics(shifted, 1.0, 5.0)["gated/from/eve"] == pytest.approx(0.9 / 0.99)
    assert external_metrics([Found("bea", 0.0, 2.0, 1.0)], 1.0, 0.1)["external/ess"] == 0
    assert external_metrics([], 1.0, 0.0) == {}
    without = external_metrics([Found("bea", 1.0, 2.0, 1.0)], None, 0.0)
    assert without == {"external/ess": 1.0, "external/weight": 1.0, "external/gated": 0.0}


# The whole update, against gradients worked out one sequence at a time.


def from_node(scored: Scored, node: str, **fields: Any) -> Scored:
    rollout = msgspec.structs.replace(scored.rollout, node=node)
    return msgspec.structs.replace(scored, rollout=rollout, foreign=node != "ada", **fields)


def told(text: str, logprobs: Sequence[float] | None) -> Completion:
    return Completion((Part(text),), logprobs=None if logprobs is None else tuple(logprobs))


def sampled(ids: Sequence[int], logprobs: Sequence[float]) -> Completion:
    return Completion((Part("sampled"),), token_ids=tuple(ids), logprobs=tuple(logprobs))


DOG = [-5.5, -6.5, -7.0]


def mixed(own_logprobs: bool = True) -> list[Scored]:
    """Own groups, one of them dead, and others': with known, wrongly counted and unknown likelihoods."""
    first = [sampled([5, 9, EOS], [-5.0, -6.0, -5.5]), sampled([7, EOS], [-6.0, -5.0])]
    own = make_scored("2 + 2 =", first if own_logprobs else [[5, 9, EOS], [7, EOS]], [1, 0])
    dead = make_scored("all the same", [sampled([3, EOS], [-4.0, -5.0])] if own_logprobs else [[3, EOS]], [1])
    ada = make_scored(
        "yes or no?",
        [told("no", [-8.0] * 3), "fox", told("lazy", [-7.4, -4.5, -7.0]), told("dog", DOG)],
        [0, 1, 0.5, 0],
    )
    bob = make_scored("the lazy dog", [told("yes", [-6.0, -6.5]), told("perhaps", None), "fox over"], [0, 1, 0])
    late = make_scored("say something", ["dog", told("2 + 2", None)], [0, 0])
    return [own, dead, from_node(ada, "bea"), from_node(bob, "bob"), from_node(late, "cy")]


class Externally(ByHand):
    """The update by hand, with others' completions weighed as the papers say, each by itself."""

    own_nll = NAN
    seen: list[tuple[str, float, float, float, int]]
    """node, advantage, mean weight, nats for each token, and tokens, of all that was trained."""

    def advantages(self, scored: Scored) -> torch.Tensor:
        advantages = super().advantages(scored)
        if scored.baseline is not None:
            advantages = torch.tensor(scored.rewards, dtype=torch.float64) - scored.baseline
        if scored.foreign and scored.instructive:
            advantages = advantages - self.config.external_baseline_shift
        return advantages

    def weights(self, c: Completion, pi: torch.Tensor, A: float) -> torch.Tensor:
        """One completion's."""
        h, n, method = self.own_nll, len(pi), self.config.external_weight
        known = c.logprobs is not None and len(c.logprobs) == n
        mu = torch.tensor(c.logprobs, dtype=torch.float64) if known else torch.full((n,), -h, dtype=torch.float64)
        rho = (pi - mu).exp() if known else (pi.mean() + h).exp().expand(n)
        w = torch.ones(n, dtype=torch.float64)
        if method == "topr" and A < 0:
            w = w * min(1.0, float((pi.sum() - mu.sum()).exp()))
        elif method == "mask" and A < 0 and float((mu - pi).mean()) > 0.5:
            w = w * 0
        elif method == "tis":
            w = rho.clip(max=1)
        elif method == "mis":
            w = torch.where((rho < 0.5) | (rho > 2), 0, rho.clip(max=1))
        elif method == "luffy":
            w = 0.1 * pi.exp() / (pi.exp() + 0.1) ** 2
        return w * 0 if self.gated(pi, A) else w

    def gated(self, pi: torch.Tensor, A: float) -> bool:
        gate = self.config.external_gate
        return bool(gate) and A > 0 and float(-pi.mean()) > self.own_nll + gate

    def through(self, advantages: torch.Tensor, olds: list[torch.Tensor]) -> float:
        """The share of a group's successes that the gate lets through."""
        ups = [(float(A), old) for A, old in zip(advantages, olds, strict=True) if A > 0]
        return sum(A for A, old in ups if not self.gated(old, A)) / sum(A for A, _ in ups) if ups else 1.0

    def loss(self, share: list[Scored], old: list[torch.Tensor]) -> torch.Tensor:
        c, longest, losses = self.config, self.policy.sampling.max_completion_length, []
        olds = iter(old)
        self.seen = []
        for s in share:
            befores = [next(olds) for _ in s.rollout.completions]
            through = self.through(self.advantages(s), befores)
            for completion, A, before in zip(s.rollout.completions, self.advantages(s), befores, strict=True):
                logp = self.logps(self.model, s, completion)
                ratio = (logp - before).exp()
                clipped = ratio.clip(1 - c.epsilon, 1 + c.epsilon_high)
                loss = -torch.min(ratio * A, clipped * A)
                w = self.weights(completion, before, float(A)) if s.foreign else torch.ones(len(logp))
                w = w * through if s.foreign and A < 0 else w
                losses.append(loss * w)
                if s.instructive:
                    one = (s.rollout.node, float(A), float(w.mean()), float(-before.mean()), len(before))
                    self.seen.append(one)
        return torch.cat(losses).sum() / (len(losses) * longest)


OWN = -(-5.0 - 6.0 - 5.5 - 6.0 - 5.0 - 4.0 - 5.0) / 7
"""Nats for each token of what `mixed` has of one's own."""
CASES: dict[str, dict[str, Any]] = {
    **{method: {"external_weight": method} for method in METHODS},
    "gate": {"external_gate": 1.5},
    "gate, split": {"external_gate": 1.5, "external_weight": "topr", "tokens_per_micro_batch": 8},
    "shift": {"external_weight": "topr", "external_baseline_shift": -0.1},
    "steps": {"external_weight": "tis", "external_gate": 1.5, "num_iterations": 2, "num_minibatches": 2},
    "topr-steps": {"external_weight": "topr", "num_iterations": 3},
}


@pytest.mark.parametrize("case", CASES)
def test_gradients_and_metrics_equal_those_by_hand(case: str) -> None:
    policy = make_policy("gpt2", double=True)
    learner = make_learner(policy, sgd=True, **CASES[case])
    by_hand = Externally(policy, learner.config, torch.optim.SGD, 1e-2)
    by_hand.own_nll = OWN
    found = record(learner)
    metrics = learner.update(mixed(), seed=3)
    by_hand.update(mixed(), seed=3)
    assert learner.own_nll == pytest.approx(OWN)
    assert len(found) == len(by_hand.gradients)
    for actual, expected in zip(found, by_hand.gradients, strict=True):
        assert_same(actual, expected, 1e-6)
    if "steps" in case:
        assert 0 < metrics["external/weight"] < 1
        return
    seen = [each for each in by_hand.seen if each[0] != "ada"]
    w = [each[2] for each in seen]
    ups = [nll - OWN > learner.config.external_gate > 0 for _, A, _, nll, _ in seen if A > 0]
    assert metrics["external/ess"] == pytest.approx(sum(w) ** 2 / (len(w) * sum(x * x for x in w)), rel=1e-6)
    assert metrics["external/weight"] == pytest.approx(sum(w) / len(w), rel=1e-6)
    assert metrics["external/gated"] == pytest.approx(sum(ups) / len(ups))
    for node in ("bea", "bob"):
        of_node = [(A * (nll - OWN > 1.5), A) for m, A, _, nll, _ in seen if A > 0 and m == node]
        told = sum(out for out, _ in of_node) / sum(A for _, A in of_node) if "gate" in case else None
        assert metrics.get(f"gated/from/{node}") == (None if told is None else pytest.approx(told))
    assert metrics["external/nll_gap"] == pytest.approx(sum(nll - OWN for _, _, _, nll, _ in seen) / len(seen))
    pull = {node: sum(abs(A) * w * n for m, A, w, _, n in by_hand.seen if m == node) for node in ("ada", "bea", "bob")}
    for node, value in pull.items():
        assert metrics[f"gradient/from/{node}"] == pytest.approx(value / sum(pull.values()), rel=1e-6)


def test_the_cases_weigh_something() -> None:
    """Or the test before would show nothing."""
    weights = {}
    for case, chosen in CASES.items():
        weights[case] = make_learner(make_policy("gpt2", double=True), **chosen).update(mixed())["external/weight"]
    assert weights.pop("none") == 1
    assert all(0 < weight < 1 for weight in weights.values()), weights


def test_who_marks_its_successes_as_cut_has_not_the_failures_alone_to_teach() -> None:
    cut = msgspec.structs.replace(told("fox over the lazy dog", None), finish_reason=FinishReason.length)
    eve = from_node(make_scored("yes or no?", [cut, "no", "yes"], [1, 0, 0]), "eve")
    learner = make_learner(make_policy("gpt2"), external_gate=1.0, mask_truncated_completions=True)
    assert learner.update([*mixed()[:1], eve])["external/weight"] == 0


def test_a_split_group_is_seen_as_one() -> None:
    chosen: dict[str, Any] = CASES["gate, split"]
    learner = make_learner(make_policy("gpt2", double=True), **chosen)
    assert split(learner._minibatches(mixed(), 3)[0])
    whole = make_learner(make_policy("gpt2", double=True), **chosen | {"tokens_per_micro_batch": 1000})
    assert not split(whole._minibatches(mixed(), 3)[0])
    both = [each.update(mixed(), seed=3) for each in (learner, whole)]
    assert both[0] == pytest.approx(both[1], rel=1e-6)


def test_luffys_gradient_is_that_of_its_objective() -> None:
    policy = make_policy("gpt2", double=True)
    learner = make_learner(policy, sgd=True, external_weight="luffy")
    found = record(learner)
    other = clone(policy)
    (s,) = mixed()[2:3]
    learner.update([s])
    prompt = other.prompt_ids(s.question)
    total = torch.zeros((), dtype=torch.float64)
    for c, r in zip(s.rollout.completions, s.rewards, strict=True):
        p = plain_logprobs(other.lm.model, prompt, ids_of(other, c)).exp()
        total = total - ((r - s.mean_reward) * p / (p + 0.1)).sum() / (4 * 12)
    total.backward()
    assert_same(found[0], gradients(other.lm.model), 1e-6)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("lie", [-1e30, -1e3, -1e-9, 0.0, 5.0, math.inf, -math.inf, NAN])
def test_no_lie_makes_a_completion_count_more_than_1(method: str, lie: float) -> None:
    policy = make_policy()
    learner = make_learner(policy, external_weight=method, external_gate=2.0)
    lengths = [len(ids_of(policy, Completion.of(text))) for text in ("no", "fox")]
    lies = [told("no", [lie] * lengths[0]), told("fox", [lie, *[-1.0] * (lengths[1] - 1)])]
    liar = from_node(make_scored("yes or no?", lies, [0, 1]), "bea")
    metrics = learner.update([liar, *mixed()])
    assert all(math.isfinite(value) for value in metrics.values())
    assert 0 <= metrics["external/weight"] <= 1
    assert metrics["learner/skipped_steps"] == 0


def test_without_any_setting_foreign_rollouts_count_as_own_ones() -> None:
    policy = make_policy(double=True)
    results = []
    for own in (False, True):
        learner = make_learner(clone(policy), num_minibatches=2)
        scored = [msgspec.structs.replace(s, foreign=False) if own else s for s in mixed()]
        found = learner.update(scored, seed=5)
        results.append(({n: v for n, v in found.items() if not n.startswith("external/")}, weights(learner.model)))
    assert results[0][0] == results[1][0]
    assert_same(results[0][1], results[1][1], 0)


def test_own_likelihood_is_learned_from_what_is_trained_where_nobody_tells() -> None:
    """As with an engine that keeps no log-probabilities; the first update then has nothing to go by."""
    learner = make_learner(make_policy(double=True), lr=0.0, external_weight="tis", external_gate=0.1)
    scored = [mixed(own_logprobs=False)[0], from_node(make_scored("the lazy dog", ["yes", "no"], [0, 1]), "bob")]
    assert sampled_nll(scored) is None
    first = learner.update(scored)
    assert first["external/weight"] == 1
    assert "external/nll_gap" not in first
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
    assert learner.update(scored)["external/nll_gap"] == pytest.approx(gap, rel=1e-6)


def test_a_saved_learner_knows_how_likely_its_own_are(tmp_path: Path) -> None:
    policy = make_policy()
    chosen: dict[str, Any] = {"external_weight": "tis", "external_gate": 2.0}
    learner = make_learner(policy, **chosen)
    learner.update(mixed(), seed=1)
    policy.save(tmp_path)
    learner.save(tmp_path)
    resumed = make_learner(LanguagePolicy(load(str(tmp_path), CPU.device), policy.sampling, CPU), **chosen)
    resumed.load(tmp_path)
    assert resumed.own_nll == learner.own_nll
    assert resumed.update(mixed()[2:], seed=2) == learner.update(mixed()[2:], seed=2)
    state = torch.load(tmp_path / "learner.pt")
    del state["own_nll"]  # as it was written before
    torch.save(state, tmp_path / "learner.pt")
    resumed.load(tmp_path)
    assert resumed.own_nll is None


def test_a_critics_advantages_decide_where_there_is_one() -> None:
    """At first a critic expects nothing, so nothing is a failure; rewards in [0, 1] are all advantages."""
    chosen: dict[str, Any] = {"advantage": "gae", "lam": 1.0, "external_weight": "topr"}
    learner = make_learner(make_policy(double=True), **chosen)
    assert learner.update(mixed())["external/weight"] == 1
    assert learner.update(mixed())["external/weight"] < 1


BALANCED: dict[str, Any] = {"balance": "source", "loss_type": "grpo"}


def test_balance_needs_to_know_the_mixture() -> None:
    policy = make_policy(double=True)
    plain, unknown, empty = (
        make_learner(clone(policy), **each) for each in ({"loss_type": "grpo"}, BALANCED, BALANCED)
    )
    empty.mixture = None
    results = [learner.update(mixed(), seed=1) for learner in (plain, unknown, empty)]
    assert results[0] == results[1] == results[2]


@pytest.mark.parametrize("loss_type", ["grpo", "dr_grpo", "dapo", "bnpo"])
def test_the_balanced_gradient_is_made_of_either_sources_own(loss_type: str) -> None:
    policy = make_policy("gpt2", double=True)
    live = [s for s in mixed() if s.instructive]

    def gradient(scored: Sequence[Scored], **chosen: Any) -> dict[str, torch.Tensor]:
        learner = make_learner(clone(policy), sgd=True, loss_type=loss_type, **chosen)
        learner.mixture = (3, 1) if chosen else None
        found = record(learner)
        learner.update(scored)
        return found[0]

    own, others = (gradient([s for s in live if s.foreign == source]) for source in (False, True))
    expected = {name: 0.75 * own[name] + 0.25 * others[name] for name in own}
    assert_same(gradient(mixed(), balance="source"), expected, 1e-6)
    only = {name: 0.25 * value for name, value in others.items()}
    assert_same(gradient(mixed()[1:], balance="source"), only, 1e-6)  # own ones are all dead


def test_balance_computes_no_dead_groups_even_for_the_divergence() -> None:
    learner = make_learner(make_policy(), beta=0.1, balance="source")
    learner.mixture = (1, 1)
    tokens = learner.update(mixed())["tokens/trained"]
    assert tokens == make_learner(make_policy()).update(mixed())["tokens/trained"]


def test_a_solved_group_is_learned_from_against_its_baseline() -> None:
    policy = make_policy("gpt2", double=True)
    solved = from_node(make_scored("the lazy dog", ["yes", "fox"], [1, 1]), "bea", baseline=0.25)
    learner = make_learner(policy, sgd=True, external_baseline_shift=-0.05)
    by_hand = Externally(policy, learner.config, torch.optim.SGD, 1e-2)
    found = record(learner)
    learner.update([solved])
    by_hand.update([solved])
    assert_same(found[0], by_hand.gradients[0], 1e-6)
    assert make_learner(policy).update([msgspec.structs.replace(solved, baseline=1.0)])["learner/steps"] == 0
    assert advantages([[1, 1]], "group", "none", [0.25], [-0.05]) == [pytest.approx([0.8, 0.8])]


def test_dead_groups_get_nothing_from_the_shift() -> None:
    """Not even where they are computed for their divergence."""
    learner = make_learner(make_policy(), beta=0.1, external_baseline_shift=-0.2)
    metrics = learner.update(mixed()[4:])
    assert metrics["loss"] == pytest.approx(0, abs=1e-6)
    assert "external/ess" not in metrics


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
@pytest.mark.parametrize("method", ["topr", "tis"])
def test_two_ranks_do_what_one_does(method: str, own_logprobs: bool) -> None:
    from shoal.config.learner import LearnerConfig
    from shoal.learn.learner import GRPOLearner

    policy = make_policy("gpt2", double=True)
    config = LearnerConfig(external_weight=method, external_gate=1.0, tokens_per_micro_batch=12, balance="source")  # type: ignore[arg-type]

    def learn(ranks: Ranks) -> Any:
        learner = GRPOLearner(clone(policy), config, 1e-2, ranks, mixture=(1, 1))
        found = [learner.update(mixed(own_logprobs), seed) for seed in range(2)]
        return found, learner.own_nll, weights(learner.model)

    expected = learn(Ranks())
    for metrics, own_nll, found in on_two_ranks(learn):
        assert own_nll == pytest.approx(expected[1], rel=1e-9)
        for ours, theirs in zip(metrics, expected[0], strict=True):
            assert ours == pytest.approx(theirs, rel=1e-5, abs=1e-9)
        assert_same(found, expected[2], 1e-5)


@settings(max_examples=20, deadline=None)
@given(st.permutations(range(5)), st.sampled_from([1, 20, 1000]))
def test_the_order_of_rollouts_and_the_token_budget_change_no_weight(order: list[int], budget: int) -> None:
    scored = mixed()
    learner = make_learner(POLICY, lr=0.0, external_weight="tis", tokens_per_micro_batch=budget)
    found = learner.update([scored[i] for i in order])
    expected = make_learner(POLICY, lr=0.0, external_weight="tis").update(scored)
    for name in ("external/ess", "external/weight", "external/nll_gap", "gradient/from/bea", "grad_norm"):
        assert found[name] == pytest.approx(expected[name], rel=1e-5)


POLICY = make_policy(double=True)
