"""What one maker contributes to an update: its groups pull no more than one's own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_learner import make_learner, record
from tiny import assert_same, clone, make_policy, make_scored

from shoal.errors import UserError
from shoal.learn.batch import Trained
from shoal.learn.learner import GRPOLearner
from shoal.learn.losses.base import Average
from shoal.learn.prepare import make_groups, maker_scales, pack
from shoal.learn.weights import make_weight
from shoal.rollout import Scored

EOS = 1


def group(answers: Sequence[Any], rewards: Sequence[float], node: str = "", text: str = "2 + 2 =") -> Scored:
    made = make_scored(text, answers, rewards)
    if not node:
        return made
    return msgspec.structs.replace(made, rollout=msgspec.structs.replace(made.rollout, node=node), from_peer=True)


OWN = group([[5, 9, EOS], [7, EOS], [7, 8, 9, EOS]], [1, 0, 0])
"""|A| = 2/3, 1/3, 1/3 over 3, 2 and 4 tokens: 4."""
EVE = group(["the lazy dog", "the lazy fox"], [1, 0], "eve", "yes or no?")


def test_size_by_hand() -> None:
    assert Average.constant.gradient_size([0.75, -0.25, -0.5], [4, 8, 2]) == 0.75 * 4 + 0.25 * 8 + 0.5 * 2
    assert Average.completion.gradient_size([0.75, -0.25, -0.5], [4, 8, 0]) == 1.0


def test_scales_by_hand() -> None:
    pulls = [("ada", 2.0), ("eve", 30.0), ("eve", 10.0), ("bob", 5.0), ("mel", 0.0)]
    assert maker_scales(pulls, 4.0, 1.25) == {"ada": 1.0, "eve": 5 / 20, "bob": 1.0, "mel": 1.0}
    assert maker_scales(pulls[:4], None, 1.0) == {"ada": 1.0, "eve": 5 / 20, "bob": 1.0}, "the median is 5"
    assert maker_scales(pulls[:3], None, 1.0) == {"ada": 1.0, "eve": 2 / 20}, "of two the lower"
    assert maker_scales(pulls[1:2], None, 1.0) == {"eve": 1.0}, "there is nobody to compare with"
    assert set(maker_scales(pulls, 4.0, 0.0).values()) == {1.0}
    assert maker_scales([], 4.0, 1.25) == {}


@given(
    st.lists(st.tuples(st.sampled_from("abcd"), st.floats(0, 1e6)), max_size=12),
    st.floats(1e-3, 1e3),
    st.floats(0.1, 4),
)
def test_nothing_is_scaled_up_and_nobody_pulls_more_than_allowed(
    pulls: list[tuple[str, float]], own: float, limit: float
) -> None:
    scales = maker_scales(pulls, own, limit)
    for maker, scale in scales.items():
        values = [value for name, value in pulls if name == maker]
        assert 0 <= scale <= 1
        assert scale * sum(values) / len(values) <= limit * own * (1 + 1e-9)


def test_a_maker_above_the_limit_is_scaled_down_to_it() -> None:
    learner = make_learner(make_policy(double=True), peers={"limit": 1.25})
    length = len(learner.policy.completion_ids(EVE.rollout.completions[0]))
    eve = sum(0.5 * len(learner.policy.completion_ids(c)) for c in EVE.rollout.completions)
    assert eve > 1.25 * 4, length
    result = learner.update([OWN, EVE])
    assert result.gradient_shares["eve"] == pytest.approx(1.25 / 2.25, rel=1e-12)
    assert learner.own_size == pytest.approx(4, rel=1e-12)
    free = make_learner(make_policy(double=True), peers={"limit": 0.0}).update([OWN, EVE])
    assert free.gradient_shares["eve"] == pytest.approx(eve / (eve + 4), rel=1e-12)


def test_the_gradient_is_ones_own_and_the_scaled_one() -> None:
    policy = make_policy(double=True)
    dead = msgspec.structs.replace(EVE, rewards=(0.0, 0.0))  # counts in the average
    learners = [make_learner(clone(policy), sgd=True, peers={"limit": limit}) for limit in (1.25, 0.0, 0.0)]
    found = [record(learner) for learner in learners]
    for learner, other in zip(learners, (EVE, EVE, dead), strict=True):
        learner.update([OWN, other])
    limited, free, own = (each[0] for each in found)
    eve = sum(0.5 * len(policy.completion_ids(c)) for c in EVE.rollout.completions)
    scale = 1.25 * 4 / eve
    assert_same(limited, {name: own[name] + scale * (free[name] - own[name]) for name in own}, 1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {"loss_type": "grpo"},
        {"loss_type": "dapo"},
        {"num_iterations": 2},
        {"peers": {"weight": "topr", "baseline_shift": -0.1}},
    ],
    ids=str,
)
def test_no_kind_of_update_lets_a_maker_by(settings: dict[str, Any]) -> None:
    shares = []
    for limit in (0.0, 0.5):
        peers = {"limit": limit} | settings.get("peers", {})
        learner = make_learner(make_policy(double=True), **settings | {"peers": peers})
        shares.append(learner.update([OWN, EVE, OWN]).gradient_shares["eve"])
    assert shares[1] < 0.75 * shares[0]


def test_the_measure_of_ones_own_outlives_the_process(tmp_path: Path) -> None:
    learner, again = (make_learner(make_policy(), peers={"limit": 1.25}) for _ in range(2))
    learner.update([OWN])
    learner.save(tmp_path)
    again.load(tmp_path)
    assert again.own_size == learner.own_size == pytest.approx(4)
    again.update([group([[5, EOS], [7, 8, EOS]], [0, 0])])
    assert again.own_size == pytest.approx(4), "dead groups say nothing"


def trained(learner: GRPOLearner, scored: Sequence[Scored]) -> list[Trained]:
    """All that an update on `scored` would train on."""
    average = learner.loss.average
    weight = learner.peer_weight
    groups = make_groups(scored, learner.policy, learner.config, weight.baseline_shift, average, 0)
    rows = pack(groups, learner.policy, average, learner.own_size, weight.limit, learner.token_budget)
    return [sequence for row in rows for sequence in row.sequences]


# Longer than what can be trained on

LONG = " ".join(["the quick brown fox jumps over the lazy dog"] * 9)


def test_answers_too_long_to_train_on_teach_nothing_by_their_reward() -> None:
    """What is right only beyond the longest completion does not make failures of the answers that were said."""
    learner = make_learner(make_policy(double=True))
    metrics = learner.update([group([LONG, LONG, "no", "yes"], [1, 1, 0, 0], "eve")]).metrics
    assert metrics["learner/steps"] == metrics["tokens/trained"] == 0


def test_a_group_without_its_overlong_answers_is_the_group_of_the_others() -> None:
    policy = make_policy(double=True)
    learners = [make_learner(clone(policy), sgd=True) for _ in range(2)]
    found = [record(learner) for learner in learners]
    both = [
        learners[0].update([group([LONG, "no", LONG, "yes"], [1, 1, 0, 0], "eve")]),
        learners[1].update([group(["no", "yes"], [1, 0], "eve")]),
    ]
    assert both[0] == both[1]
    assert_same(found[0][0], found[1][0], 1e-12)


def test_no_path_trains_on_more_tokens_than_allowed() -> None:
    policy = make_policy(max_completion_length=12)
    for text in ("no", "the lazy dog", LONG, "\n" * 400, "🐟" * 30):
        for limit in (0.0, 1.25):
            learner = make_learner(clone(policy), peers={"limit": limit})
            assert all(len(s.token_ids) <= 12 for s in trained(learner, [group([text, "yes"], [1, 0], "eve")]))


@pytest.mark.parametrize("weight", ["topr(limit=-1)", "none(baseline_shift=2)", "topr(limit='x')", "topr(limit=nan)"])
def test_parameters_of_a_weight_that_cannot_be_are_refused(weight: str) -> None:
    with pytest.raises(UserError, match=r"weight .*(cannot be made|write its parameters)"):
        make_weight(weight)
