"""Several rewards as one: sums by hand, what is missing, and what the round makes of them."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import pytest
import torch
from fakes import Exact, Parrot, Sayings, question, rollout
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from shoal.config.load import config_from_keywords, make_config
from shoal.config.rewards import FunctionSection, RewardSection, VerifierSection
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.evaluation.pass_at_k import evaluate
from shoal.rewards import Combined, Entry, Pointwise, RewardVerifier, Verified, rewards_of
from shoal.rewards.reward import Pair
from shoal.rewards.scorer import Scorer
from shoal.rollout import Scored

WEIGHTS = st.tuples(st.floats(-3, 3), st.floats(-3, 3))
Q = question(1)


class Given:
    """A reward that gives what it was given."""

    def __init__(self, *values: float | None) -> None:
        self.values = list(values)
        self.closed = False
        self.trouble = ""

    def score(self, items: Sequence[tuple[Any, Sequence[str]]]) -> list[list[float | None]]:
        return [self.values[: len(texts)] for _, texts in items]

    def close(self) -> None:
        self.closed = True


def combined(*values: Sequence[float | None], weights: Sequence[float] = ()) -> list[float]:
    entries = [Entry(str(i), Given(*v), weights[i] if weights else 1.0) for i, v in enumerate(values)]
    rewards = Combined(entries)
    (group,) = rewards.score([(Q, [str(i) for i in range(len(values[0]))])])
    return group


def test_the_verifier_alone_gives_what_the_verifier_gives() -> None:
    items = [(Q, ["right", "wrong", "right"]), (question(2), [])]
    assert Combined([Entry("right", Verified(Exact()))]).score(items) == [[1.0, 0.0, 1.0], []]


def test_a_weighted_sum_by_hand() -> None:
    assert combined([1.0, 0.0], [0.5, 0.25], weights=[3, 1]) == [3.5, 0.25]
    assert combined([1.0, 0.0], [8.0, 300.0], weights=[1, -0.5]) == [-3.0, -150.0]
    assert combined([1.0, 0.0], [8.0, 300.0], weights=[1, 0]) == [1.0, 0.0]
    assert combined([2.0, -1.0], weights=[0.5]) == [1.0, -0.5]


@given(st.lists(st.tuples(st.one_of(st.none(), st.floats(-9, 9)), st.one_of(st.none(), st.floats(-9, 9)))), WEIGHTS)
def test_the_sum_is_that_of_trl(rows: list[tuple[float | None, float | None]], weights: tuple[float, float]) -> None:
    """As GRPOTrainer computes it from a matrix with NaN in the place of None."""
    rows = [row for row in rows if row != (None, None)]
    matrix = torch.tensor([[math.nan if one is None else one for one in row] for row in [(1.0, None), *rows]])
    expected = (matrix * torch.tensor(weights)).nansum(dim=1).tolist()
    found = combined(*zip((1.0, None), *rows, strict=True), weights=weights)
    assert found == pytest.approx(expected, rel=1e-5, abs=1e-5)


def test_one_that_does_not_apply_adds_nothing() -> None:
    assert combined([1.0, 0.0, None], [0.5, None, 0.25], weights=[3, 1]) == [3.5, 0.0, 0.25]


def test_an_answer_without_any_gets_the_mean_and_nothing_is_learned_from_it() -> None:
    values = combined([1.0, None, 0.0], [None, None, None])
    assert values == [1.0, 0.5, 0.0]
    assert Combined([Entry("a", Given(None, None))]).score([(Q, ["a", "b"])]) == [[0.0, 0.0]]


def test_a_group_is_live_if_any_of_its_rewards_differs() -> None:
    r = rollout(Q, ["a", "b"])
    values = combined([0.0, 0.0], [0.5, 0.6])
    assert Scored(r, Q, tuple(values)).live
    assert Scored(r, Q, tuple(values)).mean_reward == pytest.approx(0.55)
    assert not Scored(r, Q, tuple(combined([0.0, 0.0], [0.5, 0.5]))).live


def test_trouble_is_named_and_all_are_closed() -> None:
    one, two = Given(1.0), Given(1.0)
    one.trouble = "2 x nan"
    rewards = Combined([Entry("style", one), Entry("form", two)])
    assert rewards.trouble == "reward 'style': 2 x nan"
    assert RewardVerifier(Sayings(), rewards).trouble == rewards.trouble
    rewards.close()
    assert one.closed
    assert two.closed
    with pytest.raises(ValueError, match="at least one"):
        Combined([])
    with pytest.raises(ValueError, match="same name"):
        Combined([Entry("a", one), Entry("a", two)])


def test_a_scorer_takes_rewards_in_its_verifiers_place_and_evaluation_does_not() -> None:
    tasks, verifier = Sayings(), Exact()
    entries = [Entry("right", Verified(verifier), 3.0), Entry("style", Given(0.2, 0.6), 1.0)]
    scorer = Scorer(tasks, RewardVerifier(tasks, Combined(entries)))
    held_out = replace(Q, id=replace(Q.id, index=5))
    asked = [rollout(Q), rollout(held_out), rollout(Q, ["wrong", "wrong"])]
    one, two = scorer.score(asked)
    assert one.rewards == pytest.approx((3.2, 0.6))
    assert two.rewards == pytest.approx((0.2, 0.6))
    assert one.live
    assert two.live  # by the style alone
    assert scorer.refused == 1
    answered = evaluate(Parrot(), verifier, {"say": [Q]}, samples=2, seed=0)
    assert answered.pass_at(1).value == 0.5


def test_what_the_verifier_gave_before_and_the_means() -> None:
    style = Given(0.25, 0.75, None)
    rewards = Combined([Entry("right", Verified(Exact())), Entry("style", style)])
    items = [(Q, ["right", "4", "4"])]
    assert rewards.means(items) == {"right": pytest.approx(1 / 3), "style": 0.5}
    assert rewards.means([]) == {"right": None, "style": None}
    assert rewards.score(items) == [[1.25, 0.75, 0.0]]
    assert rewards.score(items, [[0.0, 1.0, 0.5]]) == [[0.25, 1.75, 0.5]]


def gated(right: Sequence[float | None], *others: Sequence[float | None]) -> list[float]:
    entries = [Entry("right", Given(*right), gate=True), *(Entry(str(i), Given(*o)) for i, o in enumerate(others))]
    rewards = Combined(entries)
    (group,) = rewards.score([(Q, [str(i) for i in range(len(right))])])
    return group


def test_a_gate_multiplies_the_sum() -> None:
    assert gated([1.0, 0.0, 1.0], [0.5, 1.0, 0.25]) == [0.5, 0.0, 0.25]
    assert gated([1.0, 0.0, 1.0]) == [1.0, 0.0, 1.0]
    assert gated([1.0, None, 0.0], [None, 0.5, 0.5]) == [0.25, 0.5, 0.0]  # the first has the others' mean
    assert gated([0.0, 1.0, 1.0], [None, 0.5, None]) == [0.0, 0.5, 0.25]


@given(st.lists(st.tuples(st.sampled_from([0.0, 1.0]), st.floats(0, 1)), min_size=1, max_size=9))
def test_behind_a_gate_a_wrong_answer_has_nothing(rows: list[tuple[float, float]]) -> None:
    right, style = zip(*rows, strict=True)
    for value, passed in zip(gated(right, style), right, strict=True):
        assert 0 <= value <= passed


class Lengths(Pointwise):
    asked: list[Pair]

    def _score(self, pairs: list[Pair]) -> list[float | None]:
        self.asked = pairs
        return [len(text) / 10 for _, text in pairs]


def test_a_reward_of_ones_own_sees_each_text_once() -> None:
    reward = Lengths()
    items = [(Q, ["a", "bb", "a"]), (question(2), ["a"])]
    assert reward.score(items) == [[0.1, 0.2, 0.1], [0.1]]
    assert reward.asked == [(Q, "a"), (Q, "bb"), (question(2), "a")]
    reward.asked = []
    assert reward.score([*items, (Q, ["ccc"])]) == [[0.1, 0.2, 0.1], [0.1], [0.3]]
    assert reward.asked == [(Q, "ccc")]


def made(*specs: RewardSection) -> Combined | None:
    return rewards_of(Config(rewards=list(specs)), Exact(), placement=None)  # type: ignore[arg-type]


def test_the_default_is_the_verifier_itself() -> None:
    assert made() is None
    assert made(VerifierSection(kind="verifier")) is None


def test_rewards_are_made_from_their_settings() -> None:
    short = FunctionSection(kind="function", name="short", function="test_rewards_functions:few", weight=2)
    rewards = made(VerifierSection(kind="verifier"), short)
    assert rewards is not None
    with closing(rewards):
        assert [(entry.name, entry.weight) for entry in rewards.entries] == [("verifier", 1), ("short", 2)]


def test_functions_are_called_by_their_own_names_and_weighted_as_in_trl() -> None:
    names = ["test_rewards_functions:few", "test_rewards_functions:between"]
    config = config_from_keywords({"rewards": names, "reward_weights": [1.0, -0.5]})
    rewards = made(*config.rewards)
    assert rewards is not None
    with closing(rewards):
        assert [(entry.name, entry.weight) for entry in rewards.entries] == [("few", 1), ("between", -0.5)]
    with pytest.raises(UserError, match="reward_weights has 1 numbers for 2 rewards"):
        config_from_keywords({"rewards": names, "reward_weights": 1.0})


def test_rewards_that_cannot_be_made_are_refused() -> None:
    twice = FunctionSection(kind="function", function="test_rewards_functions:few")
    with pytest.raises(UserError, match="two rewards are called 'few'"):
        made(twice, twice)
    with pytest.raises(UserError, match="cannot import"):
        made(FunctionSection(kind="function", function="no_such_module:f"))


WRITE = "rewards.0: write [[rewards]] with a kind; choose from "
NONE = "rewards.0: there is no kind of reward "


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        (3, WRITE),
        ({"kind": 3}, WRITE),
        ({"vote": 3}, WRITE),
        ({"kind": "verifer"}, f"{NONE}'verifer'; did you mean 'verifier'?"),
        ({"kind": "os:system"}, f"{NONE}'os:system'; choose from "),
        ({"kind": "rankings", "file": "x"}, f"{NONE}'rankings'; choose from "),
        (
            {"kind": "verifier", "vote": 3},
            "there is no setting 'rewards.0.vote' for a reward of kind 'verifier'; did you mean 'gate'?",
        ),
        ({"kind": "function"}, "rewards.0: a reward of kind 'function' needs 'function'"),
        (
            {"kind": "function", "function": "f"},
            "a reward function is module:attribute, such as my.py:score, and not 'f'",
        ),
        ({"kind": "function", "function": "a:b", "low": 1.0}, "there is no setting 'rewards.0.low'"),
        ({"kind": "verifier", "weight": float("nan")}, "rewards.0.weight"),
    ],
)
def test_wrong_settings_get_one_line_that_says_what_would_be_right(reward: Any, message: str) -> None:
    with pytest.raises(UserError) as caught:
        make_config({"rewards": [reward]}, "file", allow_code=True)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_every_kind_comes_back_from_a_file_as_it_went_in() -> None:
    specs = [
        VerifierSection(kind="verifier", gate=True),
        FunctionSection(kind="function", function="a:b", columns={"truth": "answer"}),
    ]
    config = make_config({"rewards": [spec.model_dump() for spec in specs]}, "file", allow_code=True)
    assert config.rewards == specs
    assert make_config(tomllib.loads(config.to_toml()), "file", allow_code=True) == config
    assert config.code == ["a:b"]
