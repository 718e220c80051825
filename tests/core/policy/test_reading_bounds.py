"""What others can make a model read is bounded in its own tokens."""

from __future__ import annotations

import pytest
from tiny import make_policy, make_question, make_scored, weights

from shoal.config.sections import LearnerConfig, PeersConfig
from shoal.learn.learner import GRPOLearner
from shoal.policy.language import LanguagePolicy
from shoal.policy.reading import LEAST, LONGER, UNCOMPARED, is_too_much, most_tokens, tokens_of
from shoal.rollout import Question


@pytest.fixture
def policy() -> LanguagePolicy:
    """A model with a long context, which could read all that follows."""
    policy = make_policy()
    policy.lm.model.config.max_position_embeddings = 100_000
    assert policy.context == 100_000
    return policy


def of_length(policy: LanguagePolicy, tokens: int) -> Question:
    """A question of so many tokens, or a few more."""
    text = "2 + "
    while tokens_of(policy, make_question(text)) <= tokens:
        text += "2 + " * 50
    return make_question(text)


def test_the_bound_follows_the_longest_own_question() -> None:
    assert most_tokens([10, 20]) == LEAST
    assert most_tokens([10, LEAST]) == LONGER * LEAST
    assert most_tokens([]) == UNCOMPARED


def test_tokens_count_and_not_characters(policy: LanguagePolicy) -> None:
    """A text of some thousand characters may be few tokens, or as many as its bytes."""
    own, long = make_question("2 + 2 ="), of_length(policy, LEAST)
    assert is_too_much(policy, long, [own])
    assert not is_too_much(policy, make_question("2 + 2 = " * 10), [own])
    assert not is_too_much(policy, long, [own, of_length(policy, LEAST // 2)])
    endpoint = object()
    assert not is_too_much(endpoint, make_question("x" * 4 * LEAST), [own])
    assert is_too_much(endpoint, make_question("x" * (4 * LEAST + 4)), [own])


def test_nothing_is_learned_from_a_peer_s_question_that_is_far_longer_than_own_ones(policy: LanguagePolicy) -> None:
    own = make_scored("2 + 2 =", ["4", "4"], [1, 1])
    of_peer = make_scored(of_length(policy, LEAST).text, ["4", "5"], [1, 0]).as_peer()
    learner = GRPOLearner(policy, LearnerConfig(learning_rate=1e-2), PeersConfig())
    before = weights(policy.lm.model)
    assert learner.update([own, of_peer]).metrics["learner/steps"] == 0
    assert all(bool((weights(policy.lm.model)[name] == weight).all()) for name, weight in before.items())
    short = make_scored("2 + 3 =", ["5", "4"], [1, 0]).as_peer()
    assert learner.update([own, short]).metrics["learner/steps"] == 1


def test_a_row_far_longer_than_most_is_left_out_and_counted(policy: LanguagePolicy) -> None:
    """Nobody has looked at every row of a data set."""
    rows = [make_question("2 + 2 ="), make_question("2 + 3 ="), of_length(policy, UNCOMPARED)]
    groups = policy.generate(rows, 2, seed=0)
    assert [len(group) for group in groups] == [2, 2, 0]
    assert policy.trouble == "1 of 3 questions are too long for the model"
