"""Partial credit that fades out."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from fakes import Sayings, question, rollout

from shoal.config.load import make_config
from shoal.errors import UserError
from shoal.rewards.scorer import FadingScorer, Scorer, faded
from shoal.rollout import QuestionId, Rollout
from shoal.runs.build import Nodes


class Steps:
    """A verifier that gives 1 for "right", 0.4 for "near", and nothing for other texts."""

    def score(self, items: Sequence[tuple[QuestionId, Sequence[str]]]) -> list[list[float]]:
        return [[{"right": 1.0, "near": 0.4}.get(text, 0.0) for text in texts] for _, texts in items]


def nothing(completions: Sequence[str], **_: object) -> list[float]:
    return [0.0 for _ in completions]


def tried(node: str, round: int) -> Rollout:
    return rollout(question(1), ("right", "near", "far"), node=node, round=round)


def test_it_fades_with_the_rounds_of_the_node_itself() -> None:
    scorer = FadingScorer(Sayings(), Steps(), "ada", 4)
    for round, weight in ((1, 1.0), (2, 0.75), (4, 0.25), (5, 0.0), (9, 0.0)):
        (own,) = scorer.score([tried("ada", round)])
        (other,) = scorer.score([tried("bob", 999)])  # whatever round a stranger says that it is
        assert own.rewards == other.rewards == pytest.approx((1.0, 0.4 * weight, 0.0))


def test_what_comes_scored_already_fades_alike() -> None:
    scorer = FadingScorer(Sayings(), Steps(), "ada", 4)
    scorer.score([tried("ada", 3)])
    found = Scorer(Sayings(), Steps()).score([tried("bob", 1)])
    assert scorer.score(found) == [faded(found[0], 0.5)]


def test_other_rewards_have_no_partial_credit_to_fade() -> None:
    settings = {
        "round": {"nodes": 1},
        "tasks": {"partial_credit": 20},
        "rewards": [{"kind": "function", "function": "test_fading:nothing"}],
    }
    config = make_config(settings, "here", allow_code=True)
    with pytest.raises(UserError, match="cannot be a number of rounds"):
        Nodes(config)
