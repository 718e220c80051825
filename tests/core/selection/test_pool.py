"""The pool: what is in it, for how long, and that nothing is learned from twice."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random

import msgspec
import pytest
from fakes import scored
from hypothesis import given
from hypothesis import strategies as st

from shoal.rollout import Completion, Scored
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection


def indices(pool: Pool) -> list[int]:
    return [entry.question.id.index for entry in pool.candidates()]


def test_the_oldest_go_first_when_there_are_too_many() -> None:
    pool = Pool(size=3, max_age=9)
    pool.add([scored(index=1), scored(index=2)], round=1)
    pool.add([scored(index=3), scored(index=4)], round=2)
    assert indices(pool) == [2, 3, 4]
    pool.add([scored(index=index) for index in range(5, 10)], round=2)
    assert indices(pool) == [7, 8, 9]


def test_who_is_no_newcomer_any_more_is_none_after_a_restart(tmp_path: Path) -> None:
    """What it sent as a newcomer is still there, and what it sent since has been learned from."""
    pool = Pool(size=4)
    known = scored(index=2, node="ada")
    pool.add([msgspec.structs.replace(scored(index=1, node="ada"), newcomer=True), known], round=1)
    pool.remove([known])
    pool.save(tmp_path)
    again = Pool(size=4)
    again.load(tmp_path)
    for one in (pool, again):  # two of a newcomer are half of it, which newcomers may hold
        one.add([scored(index=n, node="bob") for n in (3, 4)], round=1)
        one.add([msgspec.structs.replace(scored(index=n, node="eve"), newcomer=True) for n in (5, 6)], round=1)
        assert indices(one) == [1, 4, 5, 6]


def test_what_is_too_old_goes() -> None:
    pool = Pool(size=9, max_age=2)
    pool.add([scored(index=1)], round=1)
    pool.add([scored(index=2)], round=2)
    pool.add([], round=3)
    assert indices(pool) == [1, 2]
    pool.add([], round=4)
    assert indices(pool) == [2]
    pool.add([], round=5)
    assert len(pool) == 0


def test_age_zero_keeps_a_round_s_own_alone() -> None:
    pool = Pool(size=9, max_age=0)
    pool.add([scored(index=1)], round=1)
    assert indices(pool) == [1]
    pool.add([scored(index=2)], round=2)
    assert indices(pool) == [2]


def test_what_was_learned_from_is_known_by_its_rollout() -> None:
    """Samplers and nodes add to what they took; two that are equal are two all the same."""
    pool = Pool(size=9, max_age=1)
    pool.add([scored(index=1), scored(index=1), scored(index=2)], round=1)
    taken = pool.candidates()[0]
    pool.remove([msgspec.structs.replace(taken, baseline=0.1, from_peer=True)])
    assert indices(pool) == [1, 2]


@given(
    size=st.integers(1, 6),
    max_age=st.integers(0, 4),
    rounds=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=10),
)
def test_a_pool_holds_the_newest_that_were_not_used(size: int, max_age: int, rounds: list[tuple[int, int]]) -> None:
    pool, expected, used, count = Pool(size, max_age), list[tuple[int, int]](), list[int](), 0
    for round, (arrivals, wanted) in enumerate(rounds):
        new = [scored(index=count + number) for number in range(arrivals)]
        expected += [(round, count + number) for number in range(arrivals)]
        count += arrivals
        pool.add(new, round)
        expected = [(arrived, index) for arrived, index in expected if round - arrived <= max_age][-size:]
        assert indices(pool) == [index for _, index in expected]
        assert len(pool) == len(expected) <= size
        chosen = FairSelection().choose_of_peers(pool.candidates(), wanted, seed=round)
        pool.remove(chosen)
        used += [entry.question.id.index for entry in chosen]
        expected = [(arrived, index) for arrived, index in expected if index not in used]
        assert indices(pool) == [index for _, index in expected]
    assert len(used) == len(set(used))


def holds(pool: Pool) -> Counter[str]:
    return Counter(entry.rollout.node for entry in pool.candidates())


def test_a_flood_by_one_takes_nothing_from_the_others() -> None:
    pool = Pool(size=256, max_age=4)
    pool.add([scored(index=n, node=name) for n in range(20) for name in ("ada", "bob", "mel", "zoe")], round=1)
    pool.add([scored(index=n, node="eve") for n in range(1000)], round=1)
    assert holds(pool) == {"ada": 20, "bob": 20, "mel": 20, "zoe": 20, "eve": 176}
    assert {e.question.id.index for e in pool.candidates() if e.rollout.node == "eve"} == set(range(824, 1000))


@given(st.integers(1, 40), st.integers(1, 9), st.randoms(use_true_random=False))
def test_makers_that_send_more_than_enough_hold_alike(size: int, makers: int, random: Random) -> None:
    pool = Pool(size, max_age=9)
    sent = [scored(index=n, node=str(maker)) for maker in range(makers) for n in range(size)]
    random.shuffle(sent)
    for start in range(0, len(sent), 7):
        pool.add(sent[start : start + 7], round=1 + start // 100)
        assert len(pool) <= size
    assert all(abs(holds(pool)[str(maker)] - size / makers) < 1 for maker in range(makers))


@given(st.lists(st.tuples(st.sampled_from("abcde"), st.booleans()), max_size=60), st.integers(1, 12))
def test_who_holds_a_fair_share_or_less_loses_nothing(sent: list[tuple[str, bool]], size: int) -> None:
    pool = Pool(size, max_age=9)
    for index, (node, live) in enumerate(sent):
        before = holds(pool)
        pool.add([scored((1.0, 0.0) if live else (0.0, 0.0), index, node)], round=1)
        after = holds(pool)
        lost = [name for name in before if after[name] < before[name]]
        assert len(pool) == min(size, index + 1)
        assert all(before[name] + 1 > size / len(before | after) for name in lost)


def test_fresh_names_hold_half_at_most_while_the_known_need_room() -> None:
    def crowd(count: int) -> list[Scored]:
        return [msgspec.structs.replace(scored(index=n, node=f"new {n}"), newcomer=True) for n in range(count)]

    pool = Pool(size=40, max_age=9)
    pool.add(crowd(200), round=1)
    assert len(pool) == 40, "places that nobody else wants"
    known = [scored(index=n, node=name) for n in range(30) for name in ("ada", "bob")]
    pool.add(known, round=1)
    assert holds(pool)["ada"] == holds(pool)["bob"] == 10
    pool.add(crowd(200), round=1)
    assert holds(pool)["ada"] == holds(pool)["bob"] == 10


def test_of_one_maker_the_rollouts_that_teach_nothing_go_first() -> None:
    pool = Pool(size=3, max_age=9)
    pool.add([scored(index=1), scored((0.0, 0.0), 2), scored(index=3), scored((1.0, 1.0), 4), scored(index=5)], round=1)
    assert indices(pool) == [1, 3, 5]
    pool.add([scored((0.0, 0.0), 6)], round=1)
    assert indices(pool) == [1, 3, 5]


@given(st.lists(st.tuples(st.lists(st.floats(0, 1), min_size=1, max_size=3), st.text()), max_size=4))
def test_a_pool_is_saved_whole(tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[list[float], str]]) -> None:
    folder: Path = tmp_path_factory.mktemp("pool")
    pool = Pool(size=9, max_age=1)
    for index, (rewards, text) in enumerate(groups):
        group = scored(rewards, index)
        answers = tuple(Completion.of(text) for _ in rewards)
        rollout = msgspec.structs.replace(group.rollout, completions=answers)
        pool.add([Scored(rollout, group.question, group.rewards)], round=index // 2)
    pool.save(folder)
    other = Pool(size=9, max_age=1)
    other.load(folder)
    assert other.candidates() == pool.candidates()
    for both in (pool, other):  # ages are saved, too
        both.add([], round=2)
    assert other.candidates() == pool.candidates()
