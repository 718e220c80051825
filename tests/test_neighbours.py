"""Whom a node listens to, without a network."""

from __future__ import annotations

import hashlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.swarm.neighbours import (
    BARREN,
    CALM,
    CROWD,
    DIGITS,
    ENOUGH,
    GRACE,
    MIXING,
    PLENTY,
    Keys,
    Neighbours,
    find_region,
    peer_of,
    random_branch,
    shard_of,
    tag_of,
)


def make_id(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def ids(number: int) -> list[str]:
    return [make_id(n) for n in range(1, number + 1)]


def make(present: int = 20, **options: int) -> Neighbours:
    neighbours = Neighbours(make_id(0), Random(1), **options)
    neighbours.enter("", ids(present))
    return neighbours


@pytest.mark.parametrize("name", ["reef", "a.b-c_D9", "x" * 64])
def test_names_that_are_fine(name: str) -> None:
    assert Keys(name).rollouts("id").startswith(f"shoal/{name}/open/rollouts/")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "**", "a$*", "ä", "x" * 65, "reef\n", "@adv", "a?b", "a#b"])
def test_names_that_would_be_another_key(name: str) -> None:
    with pytest.raises(UserError, match="letters, digits"):
        Keys(name)
    with pytest.raises(UserError, match="tag"):
        Keys("reef", name)


def test_keys() -> None:
    zenoh = pytest.importorskip("zenoh")
    keys, id = Keys("reef"), make_id(3)
    shard = shard_of(id)
    presence = zenoh.KeyExpr(keys.presence(id))
    for digits in range(DIGITS + 1):
        assert zenoh.KeyExpr(keys.region(shard[:digits])).includes(presence)
    other = f"{(int(shard[0], 16) + 1) % 16:x}"
    assert not zenoh.KeyExpr(keys.region(other)).includes(presence)
    assert not zenoh.KeyExpr(Keys("reef", "secret").region("")).intersects(presence)
    assert zenoh.KeyExpr(keys.all_tags).includes(zenoh.KeyExpr(Keys("reef", "secret").presence(id)))
    assert tag_of(Keys("reef", "secret").presence(id)) == "secret"


def test_an_id_is_believed_in_its_own_shard_only() -> None:
    id = make_id(3)
    key = Keys("reef").presence(id)
    assert peer_of(key) == id
    assert peer_of(key.replace(f"/{shard_of(id)}/", f"/{shard_of(make_id(4))}/")) is None
    assert peer_of(key[:-1]) is None
    assert peer_of("shoal/reef/open/peers/abc/../../x") is None


@given(size=st.integers(0, 3000), branch=st.integers(0, 16**DIGITS - 1), enough=st.integers(1, 64))
def test_the_region_is_the_smallest_that_has_enough(size: int, branch: int, enough: int) -> None:
    swarm = SWARM[:size]
    asked: list[str] = []

    def ask(prefix: str) -> set[str]:
        asked.append(prefix)
        return {id for id, shard in swarm if shard.startswith(prefix)}

    prefix, peers = find_region(ask, f"{branch:03x}", enough)
    assert peers == {id for id, shard in swarm if shard.startswith(prefix)}
    assert len(peers) >= enough or prefix == ""
    assert all(len(ask(deeper)) < enough for deeper in list(asked) if len(deeper) > len(prefix))


SWARM = [(id, shard_of(id)) for id in ids(3000)]


def test_it_listens_to_as_many_as_wanted_and_never_to_itself() -> None:
    neighbours = make(20)
    neighbours.came(make_id(0))
    assert len(neighbours.choose(0)) == 8
    assert neighbours.choose(1) == neighbours.choose(2)  # and keeps to them
    assert make_id(0) not in neighbours.present
    assert make(3).choose(0) == set(ids(3))


def test_another_swarm_size_another_choice_but_the_same_for_the_same_seed() -> None:
    assert make(20).choose(0) == make(20).choose(0)
    assert make(20).choose(0) != make(200).choose(0)


def test_a_dry_pool_gets_more_neighbours_up_to_the_most() -> None:
    neighbours = make(100, most=12)
    sizes = []
    for round in range(5):
        neighbours.need(live=0, wanted=4)
        sizes.append(len(neighbours.choose(round)))
    assert sizes == [10, 12, 12, 12, 12]


def test_plenty_for_a_while_gives_neighbours_up_the_least_useful_first() -> None:
    neighbours = make(20)
    chosen = neighbours.choose(0)
    useful = sorted(chosen)[:2]
    for id in useful:
        neighbours.credit(id, 5)
    for round in range(CALM * 6):
        neighbours.need(live=PLENTY * 4 + 1, wanted=4)
        neighbours.choose(round)
    assert neighbours.chosen.keys() == set(useful)


def test_a_pool_that_suffices_changes_one_neighbour_now_and_then() -> None:
    neighbours = make(200)
    chosen = neighbours.choose(0)
    for round in range(1, MIXING):
        neighbours.need(live=6, wanted=4)
        assert neighbours.choose(round) == chosen
    neighbours.need(live=6, wanted=4)
    assert len(neighbours.choose(MIXING) & chosen) in (7, 8)  # the place may fall to the same one
    met = set(chosen)
    for round in range(50 * MIXING):
        neighbours.need(live=6, wanted=4)
        met |= neighbours.choose(round)
    assert len(met) > 40


def test_where_all_are_neighbours_none_is_changed() -> None:
    neighbours = make(8)
    for round in range(3 * MIXING):
        neighbours.need(live=6, wanted=4)
        assert neighbours.choose(round) == set(ids(8))


def test_those_that_bring_nothing_are_exchanged_if_something_is_needed() -> None:
    neighbours = make(100, start=8, most=8)
    good = next(iter(sorted(neighbours.choose(0))))
    seen: Counter[str] = Counter()
    for round in range(BARREN * 12):
        neighbours.credit(good)
        neighbours.need(live=1, wanted=4)
        seen.update(neighbours.choose(round))
        assert len(neighbours.chosen) == 8
    assert good in neighbours.chosen
    assert len(seen) > 30


def test_nobody_is_exchanged_where_there_is_nobody_else() -> None:
    neighbours = make(5)
    chosen = neighbours.choose(0)
    for round in range(50):
        neighbours.need(live=0, wanted=4)
        assert neighbours.choose(round) == chosen


def test_the_absent_keep_their_place_until_somebody_can_take_it() -> None:
    neighbours = make(8)
    chosen = neighbours.choose(0)
    for id in chosen:
        neighbours.left(id)
    assert neighbours.choose(1) == chosen
    assert neighbours.choose(GRACE * 10) == chosen  # the relay is down, nobody is there
    newcomer = make_id(99)
    neighbours.came(newcomer)
    now = neighbours.choose(GRACE * 10 + 1)
    assert newcomer in now
    assert len(now & chosen) == 7
    fresh = make(8)
    chosen = fresh.choose(0)
    fresh.left(next(iter(chosen)))
    fresh.came(newcomer)
    assert fresh.choose(1) == chosen
    assert fresh.choose(GRACE + 2) != chosen


def test_when_to_look_for_another_region() -> None:
    assert not make(0).stale  # this is everybody there is
    assert make(CROWD * 8 + 1).stale
    neighbours = Neighbours(make_id(0), Random(1))
    inside = [id for id, shard in SWARM if shard.startswith("a")]
    neighbours.enter("a", inside[:20])
    assert not neighbours.stale
    for id in inside[:14]:
        neighbours.left(id)
    assert neighbours.stale
    neighbours.came(next(id for id, shard in SWARM if shard.startswith("b")))
    assert len(neighbours.present) == 6


def test_a_region_without_anybody_useful_is_left() -> None:
    neighbours = Neighbours(make_id(0), Random(1), most=8)
    neighbours.enter("a", [id for id, shard in SWARM if shard.startswith("a")][:24])
    for round in range(BARREN * 10):
        neighbours.choose(round)
        neighbours.need(live=0, wanted=4)
    assert neighbours.stale


def test_a_stranger_who_pretends_to_be_many_has_bounded_room() -> None:
    neighbours = make(0, most=8)
    for id in ids(2000):
        neighbours.came(id)
    assert len(neighbours.present) == CROWD * 8 + 1


@given(st.lists(st.tuples(st.sampled_from("+-nc"), st.integers(1, 60)), max_size=80), st.integers(0, 2**32))
def test_whatever_happens_the_bounds_hold(events: list[tuple[str, int]], seed: int) -> None:
    neighbours = Neighbours(make_id(0), Random(seed), start=4, least=2, most=9)
    for now, (what, number) in enumerate(events):
        if what == "+":
            neighbours.came(make_id(number))
        elif what == "-":
            neighbours.left(make_id(number))
        elif what == "n":
            neighbours.need(number, 10)
        else:
            neighbours.credit(make_id(number))
        before = set(neighbours.chosen)
        chosen = neighbours.choose(now * 4.0)
        assert chosen == neighbours.chosen.keys()
        assert len(chosen) <= neighbours.wanted
        assert 2 <= neighbours.wanted <= 9
        assert make_id(0) not in chosen
        assert chosen - before <= neighbours.present
        assert len(chosen) >= min(neighbours.wanted, len(neighbours.present))


def test_a_swarm_of_thousands_costs_each_node_the_same() -> None:
    """Everybody's message reaches nearly all the swarm when passed on, answers are small, and nobody is overrun."""
    listeners: Counter[str] = Counter()
    graph: dict[str, set[str]] = {}
    answers: list[int] = []
    by_prefix: dict[str, set[str]] = {}
    for id, shard in SWARM:
        for digits in range(DIGITS + 1):
            by_prefix.setdefault(shard[:digits], set()).add(id)
    random = Random(4)
    for id, _ in SWARM:
        neighbours = Neighbours(id, random)

        def ask(prefix: str) -> set[str]:
            found = by_prefix.get(prefix, set())
            answers.append(len(found))
            return found

        neighbours.enter(*find_region(ask, random_branch(random), ENOUGH * neighbours.wanted))
        graph[id] = neighbours.choose(0)
        listeners.update(graph[id])
        assert not neighbours.stale
    assert {len(chosen) for chosen in graph.values()} == {8}
    assert max(answers) < 400
    assert max(listeners.values()) < 40
    reached, frontier = set(), {SWARM[0][0]}
    while frontier:
        reached |= frontier
        frontier = {peer for id in frontier for peer in graph[id]} - reached
    assert len(reached) > 0.98 * len(SWARM)
