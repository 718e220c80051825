"""What is written down of a round."""

from __future__ import annotations

import json

import pytest
from fakes import RIGHT, WRONG, Parrot, join, make_node, question, rollout

from shoal.node import RoundResult
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Part
from shoal.runs.metrics import learned_rows, rollout_rows, round_metrics
from shoal.runs.tables import LEARNED_SCHEMA, SCHEMA, answer_columns
from shoal.selection.pool import Pool
from shoal.transports.memory import MemorySwarm


def test_the_line_of_a_round() -> None:
    swarm = MemorySwarm()
    policy = Parrot(RIGHT, WRONG, WRONG, WRONG)
    ada, bob = make_node("ada", swarm, policy=policy, J=3, pool=Pool(8, 4)), join(swarm, "bob")
    live, dead, held_out = rollout(question(6)), rollout(question(7), [RIGHT, RIGHT]), rollout(question(5))
    bob.share([live, dead, held_out])
    ada.act()
    row = round_metrics(ada, ada.learn())
    assert row["round"] == 1
    assert row["node"] == "ada"
    assert row["reward/local"] == 0.25
    assert row["reward/peers"] == 0.5
    assert row["reward/trained_on"] == pytest.approx((2 * 1 + 1) / (2 * 4 + 2))  # over completions
    assert row["rollouts/live_local"] == 2
    assert row["rollouts/shared"] == 2
    assert row["rollouts/sampled"] == 1
    assert row["rollouts/wanted"] == 3
    assert row["completions/missing"] == 0
    assert row["rollouts/pool"] == 1
    assert row["rollouts/refused"] == 1
    assert row["completions/mean_length"] == 5 + 3 / 4 + 0  # letters, and an end unless it was cut
    assert row["completions/truncated"] == 0.25
    assert row["tokens/generated"] == 2 * (5 * 4 + 3)
    assert row["loss"] == 0.5
    assert {"seconds/generate", "seconds/score", "seconds/learn", "time"} <= row.keys()
    assert json.loads(json.dumps(row)) == row


def test_means_over_nothing_are_null() -> None:
    ada = make_node("ada", I=0)
    ada.act()
    row = round_metrics(ada, ada.learn())
    for name in ("reward/local", "reward/peers", "reward/trained_on"):
        assert row[name] is None
    assert row["completions/mean_length"] is row["completions/truncated"] is None
    assert row["tokens/generated"] == row["rollouts/shared"] == 0


def test_rows_are_own_completions_with_the_columns_of_the_folder() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), join(swarm, "bob")
    bob.share([rollout(question(6))])
    ada.act()
    result = ada.learn()
    assert result.from_peers
    rows = rollout_rows(result, lambda asked: f"say {asked.seed}", lambda asked, text: f"{text} as text")
    assert len(rows) == 2 * 4
    assert all(set(row) == {name for name in SCHEMA.names if name != "round"} for row in rows)
    first = result.local[0]
    assert rows[3] == {
        "node": "ada",
        "task": "say",
        "version": "1",
        "config": first.question.id.config,
        "seed": first.question.id.seed,
        "index": first.question.id.index,
        "prompt": first.question.text,
        "completion": WRONG,
        "finish_reason": "length",
        "reward": 0.0,
        "live": True,
        "answer": f"say {first.question.id.seed}",
        "conversation": None,
        "read": f"{WRONG} as text",
    }
    assert rollout_rows(RoundResult([], [], UpdateResult()), lambda asked: None) == []


def test_more_questions_than_are_learned_from() -> None:
    policy = Parrot(RIGHT, WRONG, WRONG, WRONG)
    ada = make_node("ada", policy=policy, questions_per_round=5)
    ada.act()
    result = ada.learn()
    row = round_metrics(ada, result)
    assert row["rollouts/live_local"] == 5
    assert row["rollouts/shared"] == 5
    assert row["completions/missing"] == 0
    assert row["rollouts/wanted"] == 2
    result.local[-1] = result.local[-1].__class__(result.local[-1].rollout, result.local[-1].question, (1.0,) * 4)
    row = round_metrics(ada, result)
    assert row["reward/local"] == pytest.approx(0.4)
    assert row["reward/trained_on"] == 0.25


def test_who_learned_from_whom() -> None:
    swarm = MemorySwarm()
    ada, bob = make_node("ada", swarm), join(swarm, "bob")
    bob.share([rollout(question(6), round=9, slot=3)])
    ada.act()
    result = ada.learn()
    rows = learned_rows(ada, result)
    assert [(row["maker"], row["peer"]) for row in rows] == [("ada", False)] * 2 + [("bob", True)]
    assert rows[2] == {
        "round": 1,
        "node": "ada",
        "maker": "bob",
        "made": 9,
        "slot": 3,
        "task": "say",
        "config": question(6).id.config,
        "seed": 0,
        "index": 6,
        "live": True,
        "mean_reward": 0.5,
        "peer": True,
        "gradient_share": pytest.approx(1 / 3),
        "shortened": None,
    }
    assert sum(row["gradient_share"] for row in rows) == pytest.approx(1)
    assert all(list(row) == LEARNED_SCHEMA.names for row in rows)
    only = make_node("eve", learner=None)
    only.act()
    assert learned_rows(only, only.learn()) == []
    assert round_metrics(only, only.learn())["rollouts/wanted"] is None


def test_a_conversation_is_kept_turn_by_turn() -> None:
    said = Completion((Part("48"), Part('5"2')), observations=("higher",))
    kept = answer_columns("ada", question(1), said, 1.0, None)
    assert json.loads(kept["conversation"]) == [["48", "higher"], ['5"2', ""]]
    assert answer_columns("ada", question(1), Completion.of("48"), 1.0, None)["conversation"] is None
