"""Turns: nobody has more places for having sent more."""

from __future__ import annotations

from collections import Counter
from random import Random

import msgspec
import pytest
from fakes import scored
from hypothesis import given
from hypothesis import strategies as st

from shoal.protocols import UpdateResult
from shoal.rollout import Scored
from shoal.selection.selection import OwnSuccess
from shoal.selection.turns import FADE, Turns


def of(node: str, count: int, newcomer: bool = False) -> list[Scored]:
    return [msgspec.structs.replace(scored(index=n, node=node, slot=n), newcomer=newcomer) for n in range(count)]


def places(*groups: list[Scored], n: int, turns: Turns | None = None, seed: int = 0) -> Counter[str]:
    pool = [entry for group in groups for entry in group]
    return Counter(entry.rollout.node for entry in (turns or Turns()).choose(pool, n, Random(seed), pool))


def test_each_gives_one_before_anybody_gives_a_second() -> None:
    assert places(of("ada", 9), of("bob", 9), of("eve", 200), n=6) == {"ada": 2, "bob": 2, "eve": 2}
    assert places(of("ada", 1), of("bob", 2), of("eve", 200), n=6) == {"ada": 1, "bob": 2, "eve": 3}


@given(st.lists(st.integers(0, 20), max_size=8), st.integers(0, 12), st.integers(0, 99))
def test_turns_are_fair_whoever_sends_whatever(counts: list[int], n: int, seed: int) -> None:
    held = {str(maker): count for maker, count in enumerate(counts) if count}
    got = places(*(of(maker, count) for maker, count in held.items()), n=n, seed=seed)
    most = n if len(held) == 1 else (n + 1) // 2
    assert sum(got.values()) <= n
    for maker, count in held.items():
        assert got[maker] <= min(count, most)
        if got[maker] < min(count, most) and sum(got.values()) == n:
            assert got[maker] >= max(got.values()) - 1
    if sum(got.values()) < n:
        assert all(got[maker] == min(count, most) for maker, count in held.items())


def test_who_goes_first_is_chance() -> None:
    first = Counter(next(iter(places(of("ada", 1), of("eve", 99), n=1, seed=seed))) for seed in range(400))
    assert 140 < first["ada"] < 260


def test_nobody_gives_more_than_half_but_who_is_alone() -> None:
    assert places(of("eve", 9), n=6) == {"eve": 6}
    assert places(of("ada", 1), of("eve", 9), n=6) == {"ada": 1, "eve": 3}
    assert places(of("ada", 9), of("eve", 9), n=1).total() == 1


def test_newcomers_give_half_while_the_known_have_something_left() -> None:
    crowd = [entry for n in range(200) for entry in of(f"new {n}", 1, newcomer=True)]
    for seed in range(20):
        got = places(of("ada", 9), of("bob", 9), crowd, n=8, seed=seed)
        assert got["ada"] + got["bob"] == 4
        got = places(of("ada", 1), crowd, n=8, seed=seed)
        assert got.total() == 8
        assert got["ada"] == 1
    assert places(of("eve", 9, newcomer=True), n=4) == {"eve": 4}, "where nobody is known"


def test_who_is_ahead_gives_one_now_and_then_until_the_others_have_caught_up() -> None:
    turns, others = Turns(), [of(name, 1) for name in ("ada", "bob", "mel")]
    assert places(*others, of("eve", 9), n=8, turns=turns)["eve"] == 4
    turns.on_update(UpdateResult(gradient_shares={"eve": 0.4, "ada": 0.1, "me": 0.5}))
    given = Counter(places(*others, of("eve", 9), n=8, turns=turns, seed=seed)["eve"] for seed in range(200))
    assert set(given) == {0, 1}
    assert 60 < given[1] < 140
    assert places(*others[:2], of("eve", 9), n=8, turns=turns)["eve"] == 4, "three are too few to compare"
    for other in others:
        places(other, n=8, turns=turns)
        turns.on_update(UpdateResult())
    assert places(*others, of("eve", 9), n=8, turns=turns)["eve"] == 4


def test_who_says_nothing_new_holds_back_nobody_who_is_known() -> None:
    """Fresh names are cheap: they may not make a known maker seem to be ahead of several others."""
    turns, crowd = Turns(), [entry for n in range(9) for entry in of(f"new {n}", 1, newcomer=True)]
    places(of("ada", 4), n=8, turns=turns)
    turns.on_update(UpdateResult(gradient_shares={"ada": 1.0}))
    assert places(of("ada", 4), of("bob", 1), crowd, n=8, turns=turns)["ada"] > 1


def test_without_metrics_places_count() -> None:
    turns = Turns()
    places(of("ada", 1), of("bob", 3), n=6, turns=turns)
    turns.on_update(UpdateResult())
    assert turns.given == {"ada": 0.25, "bob": 0.75}
    turns.choose([], 6, Random(0))
    turns.on_update(UpdateResult())
    assert turns.given == {"ada": 0.25, "bob": 0.75}, "an update without foreign rollouts says nothing"


def test_a_crowd_of_names_takes_no_memory() -> None:
    turns = Turns()
    for round in range(3000):
        places(of(str(round), 1), n=1, turns=turns)
        turns.on_update(UpdateResult())
    assert len(turns.given) < 1000
    assert sum(turns.given.values()) <= 1 / (1 - FADE)


def test_memory_outlives_the_process() -> None:
    turns, again = Turns(), Turns()
    places(of("ada", 2), of("bob", 1), n=4, turns=turns)
    turns.on_update(UpdateResult(gradient_shares={"ada": 0.2, "bob": 0.6}))
    again.given = dict(turns.given)
    assert again.given == turns.given == pytest.approx({"ada": 0.25, "bob": 0.75})


@pytest.mark.parametrize(("live", "most"), [(1.0, 0.22), (0.3, 0.24)])
def test_one_who_always_has_something_gets_its_fair_share_over_time(live: float, most: float) -> None:
    """Four others send two rollouts a round, all of them live or hardly any. What is not taken waits."""
    turns, success, chance, pool, got = Turns(), OwnSuccess(), Random(1), list[Scored](), Counter[str]()
    for _ in range(200):
        pool = [entry for entry in pool if entry.rollout.node != "eve"][-40:] + of("eve", 30)
        for name in "abcd":
            pool += [scored((1.0, 0.0) if chance.random() < live else (0.0, 0.0), node=name) for _ in range(2)]
        usable = [entry for entry in pool if success.with_baseline(entry)]
        chosen = turns.choose(usable, 6, chance, pool)
        turns.on_update(UpdateResult())
        got.update(entry.rollout.node for entry in chosen)
        ids = {id(entry) for entry in chosen}
        pool = [entry for entry in pool if id(entry) not in ids]
    assert got["eve"] / got.total() < most
