"""Whom a node listens to, without a network."""

from __future__ import annotations

import hashlib
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import UserError
from shoal.identity.secret import Secret
from shoal.transports.base import DIGITS, shard_of
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.neighbours import (
    BARREN,
    CANDIDATES,
    ENOUGH,
    FOUND,
    MIXING,
    PLENTY,
    SILENT,
    TRIAL,
    Neighbours,
    find_region,
    random_branch,
)


def make_id(number: int) -> str:
    return hashlib.sha256(str(number).encode()).hexdigest()


def ids(number: int) -> list[str]:
    return [make_id(n) for n in range(1, number + 1)]


def make(found: int = 20, **options: int) -> Neighbours:
    """Neighbours that have just found so many peers, all with something to give."""
    neighbours = Neighbours(make_id(0), Random(1), **options)
    neighbours.found(ids(found), [], 0.0)
    return neighbours


def go_silent(neighbours: Neighbours, *gone: str) -> None:
    for id in gone:
        for _ in range(SILENT):
            neighbours.asked(id)


def live_through(
    neighbours: Neighbours, rounds: int, there: list[str], useful: set[str], live: int = 1, seconds: float = 10.0
) -> Counter[str]:
    """Rounds in which all of `there` are found whenever a search is due, and the useful bring something. How often
    each was listened to."""
    seen: Counter[str] = Counter()
    for round in range(rounds):
        now = round * seconds
        if neighbours.missing:
            neighbours.found(there, [], now)
        chosen = neighbours.choose(now)
        for id in chosen:
            neighbours.asked(id)
            neighbours.answered(id)
            neighbours.credit(id, id in useful)
        neighbours.need(live, 4)
        seen.update(chosen)
    return seen


@pytest.mark.parametrize("name", ["reef", "a.b-c_D9", "x" * 64])
def test_names_that_are_fine(name: str) -> None:
    assert Keys(name).rollouts("id").startswith(f"shoal/{name}/open/rollouts/")


@pytest.mark.parametrize("name", ["", "a/b", "a b", "**", "a$*", "ä", "x" * 65, "reef\n", "@adv", "a?b", "a#b"])
def test_names_that_would_be_another_key(name: str) -> None:
    with pytest.raises(UserError, match="letters, digits"):
        Keys(name)


@pytest.mark.parametrize("keys", [Keys("reef"), Keys("reef", Secret(b"s" * 32))])
def test_keys(keys: Keys) -> None:
    zenoh = pytest.importorskip("zenoh")
    id = make_id(3)
    shard = shard_of(keys.secret.address(id))
    offers = zenoh.KeyExpr(keys.offers(id))
    for digits in range(DIGITS + 1):
        assert zenoh.KeyExpr(keys.region(shard[:digits])).includes(offers)
    other = f"{(int(shard[0], 16) + 1) % 16:x}"
    assert not zenoh.KeyExpr(keys.region(other)).includes(offers)
    assert not zenoh.KeyExpr(Keys("reef", Secret(b"t" * 32)).region("")).intersects(offers)
    assert zenoh.KeyExpr(keys.all_notices).includes(zenoh.KeyExpr(keys.notices(id)))
    assert zenoh.KeyExpr("shoal/**").includes(offers)


@given(size=st.integers(0, 3000), branch=st.integers(0, 16**DIGITS - 1), enough=st.integers(1, 64))
def test_the_region_is_the_smallest_that_has_enough(size: int, branch: int, enough: int) -> None:
    swarm = SWARM[:size]
    asked: list[str] = []

    def ask(prefix: str) -> set[str]:
        asked.append(prefix)
        return {id for id, shard in swarm if shard.startswith(prefix)}

    prefix = find_region(ask, f"{branch:03x}", enough)
    assert len(ask(prefix)) >= enough or prefix == ""
    assert all(len(ask(deeper)) < enough for deeper in list(asked) if len(deeper) > len(prefix))


SWARM = [(id, shard_of(id)) for id in ids(3000)]


def test_it_listens_to_as_many_as_wanted_and_never_to_itself() -> None:
    neighbours = Neighbours(make_id(0), Random(1))
    neighbours.found([make_id(0), *ids(20)], [make_id(0)], 0)
    assert len(neighbours.choose(0)) == 8
    assert neighbours.choose(1) == neighbours.choose(2)  # and keeps to them
    assert make_id(0) not in neighbours.known
    assert make(3).choose(0) == set(ids(3))


def test_another_swarm_size_another_choice_but_the_same_for_the_same_seed() -> None:
    assert make(20).choose(0) == make(20).choose(0)
    assert make(20).choose(0) != make(200).choose(0)


def test_those_who_have_something_to_give_come_first() -> None:
    neighbours = Neighbours(make_id(0), Random(1))
    giving = ids(40)[:5]
    neighbours.found(giving, ids(40), 0)
    chosen = neighbours.choose(0)
    assert set(giving) < chosen
    assert len(chosen) == 8


def test_a_dry_pool_gets_more_neighbours_up_to_the_most() -> None:
    neighbours = make(100, most=12)
    sizes = []
    for round in range(5):
        neighbours.need(live=0, wanted=4)
        sizes.append(len(neighbours.choose(round)))
    assert sizes == [10, 12, 12, 12, 12]


def test_plenty_gives_neighbours_up_the_least_useful_first() -> None:
    neighbours = make(20)
    chosen = neighbours.choose(0)
    useful = sorted(chosen)[:2]
    for id in useful:
        neighbours.credit(id, 5)
    for round in range(6):
        neighbours.need(live=PLENTY * 4 + 1, wanted=4)
        neighbours.choose(round)
    assert neighbours.chosen.keys() == set(useful)


def test_a_pool_that_suffices_tries_somebody_else_now_and_then() -> None:
    """So that a swarm that was cut in two mixes again, and everybody is heard some time."""
    there = ids(200)
    neighbours = make(200)
    seen = live_through(neighbours, MIXING, there, set(there), live=6)
    assert len(seen) == 8
    seen += live_through(neighbours, 50 * MIXING, there, set(there), live=6)
    assert len(seen) > 40


def test_who_brings_something_keeps_its_place_from_any_number_of_others() -> None:
    """A flood of peers that offer and bring nothing: each is tried, and none displaces anybody."""
    good = set(ids(6))
    neighbours = make(6)
    live_through(neighbours, 3, sorted(good), good, live=2)
    flood = [make_id(n) for n in range(1000, 5000)]
    seen = live_through(neighbours, 10 * MIXING, [*good, *flood], good, live=2)
    assert good <= neighbours.chosen.keys()
    assert all(seen[id] == 10 * MIXING for id in good)
    assert len(seen) > 12
    seen = live_through(neighbours, 10 * MIXING, [*good, *flood], good, live=8)  # neither plenty nor too few
    assert all(seen[id] == 10 * MIXING for id in good)


def test_a_node_that_begins_among_liars_goes_through_them_quickly() -> None:
    good, liars = set(ids(8)), [make_id(n) for n in range(1000, 1040)]
    neighbours = make(0)
    live_through(neighbours, 20, [*good, *liars], good, live=0)
    assert len(good & neighbours.chosen.keys()) >= 4


def test_where_all_are_neighbours_none_is_changed() -> None:
    neighbours = make(8)
    seen = live_through(neighbours, 3 * MIXING, ids(8), set(), live=6)
    assert seen == Counter(dict.fromkeys(ids(8), 3 * MIXING))


def test_those_that_bring_nothing_are_exchanged_if_something_is_needed() -> None:
    neighbours = make(100, start=8, most=8)
    good = min(neighbours.choose(0))
    seen = live_through(neighbours, BARREN * 12, ids(100), {good})
    assert good in neighbours.chosen
    assert len(seen) > 30
    assert len(neighbours.chosen) >= 8


def test_those_that_brought_something_once_are_exchanged_too() -> None:
    neighbours = make(100, start=8, most=8)
    chosen = neighbours.choose(0)
    for id in chosen:
        neighbours.credit(id)
    live_through(neighbours, BARREN * 3, ids(100), set())
    assert not chosen & neighbours.chosen.keys()


def test_nobody_is_exchanged_where_there_is_nobody_else() -> None:
    neighbours = make(5)
    seen = live_through(neighbours, 50, ids(5), set(), live=0)
    assert seen == Counter(dict.fromkeys(ids(5), 50))


def test_those_gone_keep_their_place_until_somebody_can_take_it() -> None:
    neighbours = make(8)
    chosen = neighbours.choose(0)
    assert not neighbours.known - chosen
    go_silent(neighbours, *chosen)
    assert not neighbours.known
    assert neighbours.choose(1) == chosen
    assert neighbours.choose(1e6) == chosen  # the relay is down, nobody is there
    assert neighbours.missing
    newcomer = make_id(99)
    neighbours.found([newcomer], [], 1e6)
    now = neighbours.choose(1e6)
    assert newcomer in now
    assert len(now & chosen) == 7


def test_who_brings_something_is_there_although_no_answer_comes() -> None:
    """Others can answer in its name until its own answer is lost among theirs; nobody can sign in its name."""
    neighbours = make(8)
    chosen = neighbours.choose(0)
    for id in chosen:
        neighbours.credit(id)
    go_silent(neighbours, *chosen)
    neighbours.found(ids(40), [], 1)
    assert neighbours.choose(1) == chosen
    for _ in range(BARREN + 1):
        neighbours.need(live=6, wanted=4)
    assert neighbours.choose(2) != chosen


def test_when_to_look_for_others() -> None:
    neighbours = make(20)
    assert neighbours.missing == 8
    neighbours.choose(0)
    assert not neighbours.missing
    few = make(3)
    few.choose(0)
    assert few.missing == 5
    for _ in range(MIXING):
        neighbours.credit(min(neighbours.chosen))
        neighbours.need(live=6, wanted=4)
    neighbours.choose(FOUND)
    assert neighbours.missing == 1  # the search is long ago, so that another one is made for the guest


def test_a_region_without_anybody_useful_is_left() -> None:
    neighbours = make(24, most=8)
    for round in range(14):
        neighbours.choose(round * TRIAL / 4)
        neighbours.need(live=0, wanted=4)
    assert neighbours.missing == 8


def test_a_stranger_who_pretends_to_be_many_has_bounded_room() -> None:
    neighbours = make(2000)
    assert len(neighbours.known) == CANDIDATES


@given(st.lists(st.tuples(st.sampled_from("f+-nc"), st.integers(1, 60)), max_size=80), st.integers(0, 2**32))
def test_whatever_happens_the_bounds_hold(events: list[tuple[str, int]], seed: int) -> None:
    neighbours = Neighbours(make_id(0), Random(seed), start=4, least=2, most=9)
    found: set[str] = set()
    for now, (what, number) in enumerate(events):
        if what == "f":
            found |= set(ids(number))
            neighbours.found(ids(number)[::2], ids(number), now * 4.0)
        elif what == "+":
            neighbours.answered(make_id(number))
        elif what == "-":
            neighbours.asked(make_id(number))
        elif what == "n":
            neighbours.need(number, 10)
        else:
            neighbours.credit(make_id(number))
        chosen = neighbours.choose(now * 4.0)
        assert chosen == neighbours.chosen.keys() <= found
        assert len(chosen) <= neighbours.wanted + 1
        assert 2 <= neighbours.wanted <= 9
        assert make_id(0) not in chosen
        assert not neighbours.known & {make_id(0)}
        if what == "f":
            assert len(chosen) >= min(neighbours.wanted, number)


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

        prefix = find_region(ask, random_branch(random), ENOUGH * neighbours.missing)
        neighbours.found(by_prefix[prefix], [], 0)
        graph[id] = neighbours.choose(0)
        listeners.update(graph[id])
        assert not neighbours.missing
    assert {len(chosen) for chosen in graph.values()} == {8}
    assert max(answers) < 400
    assert max(listeners.values()) < 40
    reached, frontier = set(), {SWARM[0][0]}
    while frontier:
        reached |= frontier
        frontier = {peer for id in frontier for peer in graph[id]} - reached
    assert len(reached) > 0.98 * len(SWARM)
