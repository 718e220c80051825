"""What a node sends, where it may not send all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from fakes import RIGHT, WRONG, Parrot, join, make_node, scored
from hypothesis import given
from hypothesis import strategies as st
from shoal.selection.sending import Preference, Sharing, make_sharing

from shoal.config.settings import Config
from shoal.config.swarm import SwarmConfig
from shoal.node import Node
from shoal.rollout import Completion, Question, Rollout, Scored
from shoal.swarm.memory import MemorySwarm


def group(right: int, slot: int, task: str = "say") -> Scored:
    """A group of eight of which `right` are."""
    return scored([1.0] * right + [0.0] * (8 - right), slot + 1, "ada", task, slot)


def slots(sharing: Sharing, own: Sequence[Scored]) -> list[int]:
    return [sent.slot for sent in sharing.choose([entry.rollout for entry in own], lambda: own)]


@given(st.lists(st.integers(0, 8), max_size=10), st.integers(0, 12), st.sampled_from(["first", "live", "learnable"]))
def test_as_many_as_may_be_and_none_twice(rights: list[int], upload: int, send: Preference) -> None:
    own = [group(right, slot) for slot, right in enumerate(rights)]
    sent = slots(Sharing(upload, send), own)
    assert len(sent) == min(upload or len(own), len(own)) == len(set(sent))
    live = sum(entry.live for entry in own)
    if send != "first":
        assert sum(own[slot].live for slot in sent) == min(live, len(sent))


def refuse() -> list[Scored]:
    raise AssertionError("nothing was to be scored")


def test_rewards_are_found_only_where_the_choice_goes_by_them() -> None:
    tried = [group(4, slot).rollout for slot in range(4)]
    assert Sharing().choose(tried, refuse) == tried
    assert Sharing(4, "learnable").choose(tried, refuse) == tried
    assert Sharing(2, "first").choose(tried, refuse) == tried[:2]


def test_live_ones_go_first_and_then_what_is_right_throughout() -> None:
    own = [group(right, slot) for slot, right in enumerate([0, 8, 1, 0, 4, 8])]
    assert slots(Sharing(5, "live"), own) == [2, 4, 1, 5, 0]
    assert slots(Sharing(5, "learnable"), own) == [4, 2, 1, 5, 0]


def test_the_nearest_to_half_right_go_first_and_then_tasks_sent_least() -> None:
    sharing = Sharing(2, "learnable")
    own = [group(1, 0, "a"), group(3, 1, "a"), group(5, 2, "a"), group(3, 3, "b"), group(7, 4, "c")]
    assert slots(sharing, own) == [1, 3]
    assert slots(sharing, own) == [1, 3]
    assert slots(Sharing(3, "learnable"), [*own[:3], group(7, 3, "c")]) == [1, 2, 3]
    few = Sharing(1, "learnable")
    equals = [group(4, 0, "a"), group(4, 1, "b"), group(4, 2, "c")]
    assert [slots(few, equals) for _ in range(4)] == [[0], [1], [2], [0]]


def test_a_loaded_one_goes_on(tmp_path: Path) -> None:
    equals = [group(4, 0, "a"), group(4, 1, "b"), group(4, 2, "c")]
    sharing, other = Sharing(1), Sharing(1)
    slots(sharing, equals)
    sharing.save(tmp_path)
    other.load(tmp_path)
    assert slots(other, equals) == slots(sharing, equals) == [1]


def test_settings_are_the_swarm_s() -> None:
    sharing = make_sharing(Config(swarm=SwarmConfig(upload=3, send="live")))
    assert (sharing.upload, sharing.send) == (3, "live")
    assert make_sharing(Config()).upload == 0


class Uneven(Parrot):
    """Right throughout, half of the time, and never, in turn."""

    def generate(self, questions: Sequence[Question], num_generations: int, seed: int) -> list[tuple[Completion, ...]]:
        answers = [(RIGHT, RIGHT), (RIGHT, WRONG), (WRONG, WRONG)]
        return [tuple(map(Completion.of, answers[slot % 3])) for slot, _ in enumerate(questions)]


def uneven(sharing: Sharing) -> tuple[Node, list[Rollout]]:
    """A node after a round, and what others have of it."""
    swarm = MemorySwarm()
    node, listener = make_node("ada", swarm, policy=Uneven(), local=6, sharing=sharing), join(swarm)
    node.act()
    asked = len(node.scorer.verifier.asked)  # type: ignore[attr-defined]
    assert asked == (0 if sharing.send == "first" or not sharing.upload else 6)
    lesson = node.learn()
    assert len(node.scorer.verifier.asked) == 6 == len(lesson.own)  # type: ignore[attr-defined]
    assert set(node.seconds) == {"generate", "score", "learn"}
    return node, [entry.rollout for entry in listener.receive()]


def test_a_node_sends_what_it_may_and_scores_once() -> None:
    for sharing, expected in (
        (Sharing(), [0, 1, 2, 3, 4, 5]),
        (Sharing(3, "first"), [0, 1, 2]),
        (Sharing(3, "live"), [1, 4, 0]),
        (Sharing(2, "learnable"), [1, 4]),
    ):
        node, received = uneven(sharing)
        assert [rollout.slot for rollout in received] == expected
        assert [rollout.slot for rollout in node.sent] == expected
        assert all(completion.token_ids is None for rollout in received for completion in rollout.completions)
