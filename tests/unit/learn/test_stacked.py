"""Stacked nodes do what separate ones do."""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from tiny import (
    CPU,
    assert_same,
    clone,
    gradients,
    make_lm,
    make_model,
    make_policy,
    make_question,
    make_scored,
    weights,
)

from shoal.config.learner import LearnerConfig
from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.learn.batch import Row, Trained
from shoal.learn.learner import GRPOLearner
from shoal.learn.stacked import StackedLearner, make_lanes
from shoal.parallel.lockstep import Company
from shoal.policy import stacked
from shoal.policy.device import Placement
from shoal.policy.draw import Sampling
from shoal.policy.language import LanguagePolicy
from shoal.policy.loading import load
from shoal.policy.stacked import StackedPolicy, stack
from shoal.rollout import Completion, Scored

EOS = 1
QUESTIONS = ("2 + 2 =", "the lazy dog", "yes or no? and why not, 10 - 3 = 7", "fox")


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    """Sums of several threads differ in the last digits, in which these tests compare."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def make_policies(count: int = 3, architecture: str = "llama", **options: Any) -> list[LanguagePolicy]:
    return [make_policy(architecture, seed=number, **options) for number in range(count)]


def both(policies: Sequence[LanguagePolicy]) -> tuple[list[StackedPolicy], list[LanguagePolicy]]:
    """The policies stacked, and separate copies of them."""
    separate = [clone(policy) for policy in policies]
    return stack(policies, Company()), separate


def together(members: Sequence[Any], call: Callable[[Any, int], Any]) -> list[Any]:
    """`call(member, number)` of all, as nodes of a run make it."""
    first = members[0]
    company = (first.policy if isinstance(first, StackedLearner) else first).stack.company
    results: list[Any] = company.together(
        [lambda m=member, n=number: call(m, n) for number, member in enumerate(members)]
    )
    return results


def make_learners(policies: Sequence[LanguagePolicy], lr: float = 1e-2, **settings: Any) -> list[Any]:
    kind = StackedLearner if isinstance(policies[0], StackedPolicy) else GRPOLearner
    return [kind(policy, LearnerConfig(**{"max_grad_norm": 0.1, **settings}), lr) for policy in policies]


def lessons(round: int) -> list[list[Scored]]:
    """What each of three nodes has to learn in a round: groups of unequal size and number, and once nothing."""
    live = [
        make_scored("2 + 2 =", [[5, 9, EOS], [7, EOS], [30, 31, 32, 33, 34], "4", "lazy fox"], [1, 0, 0.5, 1, 0]),
        make_scored("the lazy dog", [[40 + round, 41, EOS], [8]], [0, 1]),
        make_scored("yes or no?", ["yes", "no", [11, 12, 13, EOS], Completion.of("perhaps", "length")], [1, 0, 0, 0.2]),
        make_scored("say nothing", ["", Completion.of("", "length"), [77, 78 + round, EOS]], [1, 0.3, 0]),
    ]
    dead = make_scored("all the same", [[3, EOS], [4, 5, EOS], "6"], [1, 1, 1])
    return [[[*live, dead], [live[1]], [dead]], [live[:2], live, [live[3]]], [[dead], live[2:], live]][round % 3]


def answers(policy: LanguagePolicy, seed: int, questions: Sequence[str] = QUESTIONS) -> list[list[tuple[int, ...]]]:
    groups = policy.generate([make_question(text) for text in questions], 3, seed)
    return [[completion.token_ids or () for completion in group] for group in groups]


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("tied", [False, True])
def test_logits_and_gradients_are_those_of_separate_models(architecture: str, tied: bool) -> None:
    policies, separate = both(make_policies(architecture=architecture, double=True, tie_word_embeddings=tied))
    ids_NRS = torch.randint(300, (3, 4, 7), generator=torch.Generator().manual_seed(0))
    ids_NRS[:, 0, 2] = 0  # padding, whose embedding has no gradient
    target = torch.randn(3, 4, 7, 300, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    model = policies[0].stack.model
    logits = model(ids_NRS.flatten(0, 1), use_cache=False).logits.view_as(target)
    (logits * target).sum().backward()
    for number, policy in enumerate(separate):
        theirs = policy.lm.model(ids_NRS[number], use_cache=False).logits
        torch.testing.assert_close(logits[number], theirs, rtol=0, atol=1e-10)
        (theirs * target[number]).sum().backward()
        names = [name for name, _ in policy.lm.model.named_parameters()]
        ours = {name: whole.grad[number] for name, (whole, _) in zip(names, policies[0].stack.pairs, strict=True)}
        assert_same(ours, gradients(policy.lm.model), 1e-8)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize(
    ("double", "tolerance"), [pytest.param(True, 1e-8, id="float64"), pytest.param(False, 2e-4, id="float32")]
)
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"loss_type": "gspo", "num_iterations": 2, "num_minibatches": 2, "epsilon": 0.01, "epsilon_high": 0.01},
        {"loss_type": "dapo", "beta": 0.1, "num_minibatches": 3, "scale_rewards": "group"},
        {"loss_type": "cispo", "epsilon_high": 5.0, "advantage": "rloo", "tokens_per_micro_batch": 8},
    ],
    ids=["default", "gspo", "beta", "cispo"],
)
def test_updates_are_those_of_separate_learners(
    architecture: str, double: bool, tolerance: float, settings: dict[str, Any]
) -> None:
    policies, separate = both(make_policies(architecture=architecture, double=double))
    ours, theirs = make_learners(policies, **settings), make_learners(separate, **settings)
    if not double:  # linear in the gradient, where Adam would make much of what is nought but for rounding
        for learner in [*ours, *theirs]:
            learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=1.0)
    for round in range(3):
        scored = lessons(round)
        found = together(ours, lambda learner, n, s=scored, r=round: learner.update(s[n], r))
        for number, learner in enumerate(theirs):
            expected = learner.update(scored[number], round)
            assert found[number] == pytest.approx(expected, rel=1e-6 if double else 1e-2, abs=1e-6)
            assert_same(weights(policies[number].lm.model), weights(learner.model), tolerance)
    if not double:
        return
    states = [[learner.optimizer.state_dict()["state"] for learner in each] for each in (ours, theirs)]
    for mine, other in zip(*states, strict=True):
        assert [s["step"] for s in mine.values()] == [s["step"] for s in other.values()]


def others_lessons(round: int, told: bool) -> list[list[Scored]]:
    """The same where some groups are another node's, with or without what they were sampled with, and one node has
    none of its own."""

    def member(scored: Scored, number: int) -> Scored:
        foreign = (number + round) % 2 == 0
        completions = [
            msgspec.structs.replace(c, logprobs=(-5.0 - 0.5 * at,) * len(c.token_ids) if told and c.token_ids else None)
            for at, c in enumerate(scored.rollout.completions)
        ]
        rollout = msgspec.structs.replace(
            scored.rollout, node="bob" if foreign else "ada", completions=tuple(completions)
        )
        return msgspec.structs.replace(scored, rollout=rollout, foreign=foreign)

    return [[member(s, number) for number, s in enumerate(each)] for each in lessons(round)]


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize(
    "settings",
    [
        {"external_weight": "topr", "external_gate": 0.5},
        {"external_weight": "topr", "external_gate": 0.5, "tokens_per_micro_batch": 8},
        {"external_weight": "tis", "balance": "source", "num_iterations": 2, "num_minibatches": 2},
        {"external_weight": "mis", "loss_type": "gspo", "external_baseline_shift": -0.1},
        {"external_weight": "luffy", "loss_type": "dapo", "balance": "source", "scale_rewards": "group"},
        {"external_weight": "mask", "beta": 0.1, "tokens_per_micro_batch": 8},
    ],
    ids=["topr", "split", "tis", "mis", "luffy", "mask"],
)
def test_others_completions_count_as_they_do_for_separate_learners(settings: dict[str, Any], told: bool) -> None:
    policies, separate = both(make_policies(double=True))
    ours, theirs = make_learners(policies, **settings), make_learners(separate, **settings)
    for learner in [*ours, *theirs]:
        learner.mixture = (2, 1) if "balance" in settings else None
        learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=0.1)
    seen = set()
    for round in range(3):
        scored = others_lessons(round, told)
        found = together(ours, lambda learner, n, s=scored, r=round: learner.update(s[n], r))
        for number, learner in enumerate(theirs):
            expected = learner.update(scored[number], round)
            assert found[number] == pytest.approx(expected, rel=1e-6, abs=1e-6)
            assert [ours[number].own_nll] == [pytest.approx(learner.own_nll) if learner.own_nll else None]
            assert_same(weights(policies[number].lm.model), weights(learner.model), 1e-8)
            seen.add(expected.get("external/weight"))
    assert len(seen - {None, 0.0, 1.0}) > 1 or not told


@pytest.mark.parametrize("where", ["reward", "weight"])
def test_a_gradient_that_is_not_finite_stops_its_own_node_only(where: str) -> None:
    policies, separate = both(make_policies())
    ours, theirs = make_learners(policies), make_learners(separate)
    good = lessons(1)
    together(ours, lambda learner, n: learner.update(good[n]))
    for learner, scored in zip(theirs, good, strict=True):
        learner.update(scored)
    bad = [
        good[0],
        [make_scored("bad", [[3, EOS], [4, EOS]], [math.inf, 0])] if where == "reward" else good[1],
        good[2],
    ]
    if where == "weight":  # a hidden state that is not a number anywhere in this node
        with torch.no_grad():
            policies[1].lm.model.model.norm.weight[0] = math.nan
    before, state = weights(policies[1].lm.model), copy.deepcopy(ours[1].optimizer.state_dict())
    found = together(ours, lambda learner, n: learner.update(bad[n]))
    assert [metrics["learner/steps"] for metrics in found] == [1, 0, 1]
    assert [metrics["learner/skipped_steps"] for metrics in found] == [0, 1, 0]
    torch.testing.assert_close(weights(policies[1].lm.model), before, rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(ours[1].optimizer.state_dict(), state, rtol=0, atol=0)
    for number in (0, 2):
        theirs[number].update(bad[number])
        assert_same(weights(policies[number].lm.model), weights(separate[number].lm.model), 2e-4)
    if where == "reward":  # and it goes on as if nothing had been
        together(ours, lambda learner, n: learner.update(good[n]))
        theirs[1].update(good[1])
        assert_same(weights(policies[1].lm.model), weights(separate[1].lm.model), 2e-4)


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
@pytest.mark.parametrize("sampling", [{}, {"temperature": 0.7, "top_p": 0.9}])
def test_what_is_sampled_is_what_each_would_sample_alone(architecture: str, sampling: dict[str, Any]) -> None:
    policies, separate = both(make_policies(architecture=architecture, **sampling))
    asked = [QUESTIONS, QUESTIONS[:1], QUESTIONS[1:]]
    found = together(policies, lambda policy, n: answers(policy, 7 + n, asked[n]))
    lengths = {len(ids) for groups in found for group in groups for ids in group}
    assert len(lengths) > 1
    for number, policy in enumerate(separate):
        assert found[number] == answers(policy, 7 + number, asked[number])
        assert found[number] == answers(policies[number], 7 + number, asked[number])  # out of company


def test_few_prompts_at_a_time_give_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    policies, _ = both(make_policies())
    whole = together(policies, lambda policy, n: answers(policy, n))
    monkeypatch.setattr(stacked, "CACHE_BYTES", 1)
    assert together(policies, lambda policy, n: answers(policy, n)) == whole


def test_nodes_with_nothing_to_ask_or_absent_are_waited_for_by_nobody() -> None:
    policies, separate = both(make_policies())
    found = together(policies, lambda policy, n: answers(policy, 1, QUESTIONS if n == 1 else ()))
    assert found == [[], answers(separate[1], 1), []]
    (alone,) = policies[0].stack.company.together([lambda: answers(policies[2], 1)])
    assert alone == answers(separate[2], 1)
    learners = make_learners(policies)
    before = weights(policies[0].lm.model)
    together(learners, lambda learner, n: learner.update(lessons(0)[0]) if n == 2 else None)
    assert_same(weights(policies[0].lm.model), before, 0)
    (other,) = make_learners(separate[2:])
    other.update(lessons(0)[0])
    assert_same(weights(policies[2].lm.model), weights(other.model), 2e-4)


def test_an_update_out_of_company_is_that_of_the_node_alone() -> None:
    policies, separate = both(make_policies())
    ours, theirs = make_learners(policies), make_learners(separate)
    for each in (ours[1], theirs[1]):
        each.update(lessons(0)[0])
    for number in range(3):
        assert_same(weights(policies[number].lm.model), weights(separate[number].lm.model), 0)
    found = together(policies, lambda policy, n: answers(policy, n))
    assert found == [answers(policy, number) for number, policy in enumerate(separate)]


def test_a_stacked_node_is_saved_as_any_other_and_goes_on_alone(tmp_path: Path) -> None:
    policies, _ = both(make_policies(tie_word_embeddings=True))
    learners = make_learners(policies, beta=0.1)
    together(learners, lambda learner, n: learner.update(lessons(1)[n]))
    resumed = []
    for number, policy in enumerate(policies):
        folder = tmp_path / str(number)
        folder.mkdir()
        policy.save(folder)
        learners[number].save(folder)
        size = sum(4 * weight.numel() for weight in policy.lm.model.parameters())
        assert (folder / "model.safetensors").stat().st_size < size + 8192
        loaded = LanguagePolicy(load(str(folder), CPU.device), policy.sampling, CPU)
        assert_same(weights(loaded.lm.model), weights(policy.lm.model), 0)
        resumed.append(loaded)
    others = make_learners(resumed, beta=0.1)
    again = make_learners(stack([clone(policy) for policy in resumed], Company()), beta=0.1)
    for each in (others, again):
        for number, learner in enumerate(each):
            learner.load(tmp_path / str(number))
    for each in (learners, again):
        together(each, lambda learner, n: learner.update(lessons(2)[n]))
    for number, learner in enumerate(others):
        learner.update(lessons(2)[number])
        assert_same(weights(again[number].model), weights(policies[number].lm.model), 1e-6)
        assert_same(weights(learner.model), weights(policies[number].lm.model), 2e-4)


def test_lanes_have_equally_many_rows_of_each_node_and_keep_to_the_budget() -> None:
    def row(length: int, tokens: int) -> Row:
        return Row([5] * length, (Trained([7] * tokens, 1.0, 1.0, 0),))

    rows = [[row(3, 2), row(9, 4), row(4, 1)], [], [row(8, 3)]]
    lanes = list(make_lanes(rows, 40, CPU.device))
    assert [tuple(each.batch.input_ids_RS.shape) for each in lanes] == [(3, 12), (6, 4)]
    assert [each.tokens_N for each in lanes] == [[4, 0, 3], [3, 0, 0]]
    assert lanes[0].node_T.tolist() == [0, 0, 0, 0, 2, 2, 2]
    assert lanes[0].grid(torch.arange(7)).tolist() == [[0, 1, 2, 3], [0, 0, 0, 0], [4, 5, 6, 0]]


@pytest.mark.parametrize(
    ("models", "reason"),
    [
        ([make_model("gpt2"), make_model("gpt2")], "no stacked LayerNorm"),
        ([make_model("gemma3"), make_model("gemma3")], "no stacked Gemma3TextScaledWordEmbedding"),
        ([make_model("llama"), make_model("qwen2")], "unlike architecture"),
        ([make_model("llama"), make_model("llama", rope_theta=5.0)], "unlike architecture"),
        ([make_model("llama")] * 2, "share weights"),
    ],
    ids=["gpt2", "gemma3", "mixed", "rope", "shared"],
)
def test_models_that_cannot_be_stacked_are_refused(models: list[Any], reason: str) -> None:
    with pytest.raises(UserError, match=reason):
        stack([policy_of(model) for model in models], Company())


def policy_of(model: Any) -> LanguagePolicy:
    lm = make_lm()
    return LanguagePolicy(type(lm)("tiny", model, lm.tokenizer, lm.stop_ids, lm.eos_id, lm.pad_id), Sampling(), CPU)


def test_a_stacked_model_that_computes_something_else_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.policy import layers

    class Wrong(layers.StackedLinear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x).roll(1, -1)

    monkeypatch.setattr(layers, "StackedLinear", Wrong)
    with pytest.raises(UserError, match="nats off"):
        stack(make_policies(), Company())


@pytest.mark.parametrize("settings", [{"advantage": "gae"}, {"gradient_checkpointing": True}])
def test_settings_that_do_not_go_with_stacking_are_refused(settings: dict[str, Any]) -> None:
    policies, _ = both(make_policies(1))
    with pytest.raises(UserError, match=f"learner.{next(iter(settings))} = "):
        make_learners(policies, **settings)


def test_large_heads_are_computed_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    from shoal.learn import stacked as learning

    policies, separate = both(make_policies(double=True))
    monkeypatch.setattr(learning, "CHUNK_ELEMENTS", 3 * 300 * 2)
    ours, theirs = make_learners(policies), make_learners(separate)
    together(ours, lambda learner, n: learner.update(lessons(1)[n]))
    for number, learner in enumerate(theirs):
        learner.update(lessons(1)[number])
        assert_same(weights(policies[number].lm.model), weights(learner.model), 1e-8)


def guppies(count: int, placement: Placement = CPU) -> tuple[list[StackedPolicy], list[Any]]:
    from shoal.policy.loading import LanguageModel

    first = load("guppy", placement.device)
    sampling = Sampling(max_completion_length=16)
    policies = []
    for _ in range(count):
        model = copy.deepcopy(first.model)
        lm = LanguageModel(first.name, model, first.tokenizer, first.stop_ids, first.eos_id, first.pad_id)
        policies.append(LanguagePolicy(lm, sampling, placement))
    together = stack(policies, Company())
    return together, make_learners(together, 2e-4)


def a_round(policies: Sequence[StackedPolicy], learners: Sequence[Any]) -> list[dict[str, float]]:
    questions = [make_question(text) for text in ("2 + 2 =", "7 - 3 =", "1 + 1 =", "9 - 5 =")]
    groups = together(policies, lambda policy, n: policy.generate(questions, 8, n))
    scored = [
        [make_scored(q.text, group, [float(i % 2) for i in range(8)]) for q, group in zip(questions, each, strict=True)]
        for each in groups
    ]
    found: list[dict[str, float]] = together(learners, lambda learner, n: learner.update(scored[n]))
    return found


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_in_bfloat16_they_stay_as_near_as_its_rounding(architecture: str) -> None:
    """Autocast, as on a GPU; there are fewer than three digits."""
    placement = Placement(torch.device("cpu"), torch.bfloat16)
    tiny = [LanguagePolicy(p.lm, p.sampling, placement) for p in make_policies(architecture=architecture)]
    policies, separate = both(tiny)
    questions = [make_question(text) for text in QUESTIONS]
    found = together(policies, lambda policy, n: policy.generate(questions, 3, n))
    for number, policy in enumerate(separate):
        for ours, theirs in zip(found[number], policy.generate(questions, 3, number), strict=True):
            for mine, other in zip(ours, theirs, strict=True):
                assert mine.token_ids is not None
                assert other.token_ids is not None
                if mine.token_ids[0] == other.token_ids[0]:
                    assert (mine.logprobs or ())[0] == pytest.approx((other.logprobs or ())[0], abs=0.1)
    learners, others = make_learners(policies), make_learners(separate)
    for learner in [*learners, *others]:
        learner.optimizer = torch.optim.SGD(learner.model.parameters(), lr=1.0)
    metrics = together(learners, lambda learner, n: learner.update(lessons(1)[n]))
    for number, learner in enumerate(others):
        assert metrics[number] == pytest.approx(learner.update(lessons(1)[number]), rel=0.05, abs=1e-3)
        assert_same(weights(policies[number].lm.model), weights(learner.model), 0.02)


@pytest.mark.slow
def test_eighty_guppies() -> None:
    found = a_round(*guppies(80))
    assert [metrics["learner/steps"] for metrics in found] == [1] * 80
    assert len({metrics["grad_norm"] for metrics in found}) > 70  # each learned from its own answers


def test_a_run_of_stacked_nodes_is_a_run_of_separate_ones(tmp_path: Path) -> None:
    """The nodes of a `Run`, with their tasks, swarm and verifier, as they are."""
    from shoal.cli.display import QuietDisplay
    from shoal.runs.folder import RunFolder
    from shoal.runs.run import Run

    settings = {
        "swarm": {"nodes": 3, "local": 2, "external": 2, "workers": 0},
        "evaluation": {"questions": 1, "samples": 1},
    }
    config = make_config({**settings, "policy": {"num_generations": 4, "dtype": "float32", "device": "cpu"}}, "test")
    runs = [Run(config, RunFolder.create(tmp_path / n, config.to_toml()), QuietDisplay()) for n in ("a", "b")]
    ours, theirs = runs
    company = Company()
    for node, policy in zip(ours.nodes, stack([node.policy for node in ours.nodes], company), strict=True):
        node.policy, node.learner = policy, StackedLearner(policy, ours.config.learner, 2e-4)
    for _ in range(2):
        company.together([node.act for node in ours.nodes])
        found = company.together([node.learn for node in ours.nodes])
        for node in theirs.nodes:
            node.act()
        expected = [node.learn() for node in theirs.nodes]
        for mine, other in zip(found, expected, strict=True):
            assert told(mine.own) == told(other.own)
            assert told(mine.foreign) == told(other.foreign)
            logps, others = ([c.logprobs for s in each.own for c in s.rollout.completions] for each in (mine, other))
            for sampled, expected_of_one in zip(logps, others, strict=True):
                assert sampled == pytest.approx(expected_of_one, abs=1e-3)
            assert mine.update == pytest.approx(other.update, rel=1e-2, abs=1e-5)
    for run in runs:
        run.close()


def told(scored: Sequence[Scored]) -> list[Any]:
    """All but log-probabilities, which differ by rounding."""
    return [(s.rollout.question, [(c.text, c.token_ids) for c in s.rollout.completions], s.rewards) for s in scored]


def test_an_error_in_one_call_ends_all_and_is_raised() -> None:
    company, ended = Company(), []

    def ask(number: int) -> None:
        try:
            company.ask(lambda _key, works: works, "key", number, None)
        finally:
            ended.append(number)

    def fail() -> None:
        raise UserError("no")

    with pytest.raises(UserError, match="no"):
        company.together([lambda: ask(0), fail, lambda: ask(2)])
    assert ended == [0]  # the third had not begun
    assert not company.present


def test_an_error_in_what_is_worked_out_ends_all_and_is_raised() -> None:
    company, seen = Company(), []

    def answer(_key: Any, works: dict[int, int]) -> dict[int, int]:
        seen.append(dict(works))
        if 13 in works.values():
            raise ValueError("unlucky")
        return {number: 2 * work for number, work in works.items()}

    assert company.together([lambda n=n: company.ask(answer, "key", n, n + 10) for n in range(3)]) == [20, 22, 24]
    with pytest.raises(ValueError, match="unlucky"):
        company.together([lambda n=n: company.ask(answer, "key", n, n + 12) for n in range(3)])
    assert seen == [{0: 10, 1: 11, 2: 12}, {0: 12, 1: 13, 2: 14}]


def test_calls_run_in_order_and_only_like_questions_are_joined() -> None:
    company, said = Company(), []

    def call(number: int) -> int:
        said.append(("before", number))
        double: int = company.ask(answer, number % 2, number, number)
        said.append(("after", number))
        return double

    def answer(key: int, works: dict[int, int]) -> dict[int, int]:
        said.append((str(key), len(works)))
        return {number: 2 * work for number, work in works.items()}

    assert company.together([lambda n=n: call(n) for n in range(3)]) == [0, 2, 4]
    before, after = [("before", n) for n in range(3)], [("after", n) for n in range(3)]
    assert said == [*before, ("0", 2), ("1", 1), *after]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_eighty_guppies_on_a_gpu(dtype: torch.dtype) -> None:
    policies, learners = guppies(80, Placement(torch.device("cuda"), dtype))
    for _ in range(2):
        found = a_round(policies, learners)
        assert [metrics["learner/steps"] for metrics in found] == [1] * 80
        assert all(math.isfinite(value) for metrics in found for value in metrics.values())


@pytest.mark.gpu
def test_updates_on_a_gpu_are_those_of_separate_learners() -> None:
    placement = Placement(torch.device("cuda"), torch.float32)
    policies, ours = guppies(3, placement)
    theirs = make_learners([LanguagePolicy(clone(p).lm, p.sampling, placement) for p in policies], 2e-4)
    for round in range(3):
        together(ours, lambda learner, n, r=round: learner.update(lessons(r)[n]))
        for number, learner in enumerate(theirs):
            learner.update(lessons(round)[number])
            assert_same(weights(policies[number].lm.model), weights(learner.model), 1e-3)
