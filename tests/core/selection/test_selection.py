"""Selection: live rollouts, each as likely as the other, with others' in place of own dead ones, quotas and trust."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import question, rollout, scored
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.sections import SelectionConfig
from shoal.errors import UserError
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Scored
from shoal.selection.makers import Newcomers
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection, live_first

LIVE, DEAD = (1.0, 0.0), (1.0, 1.0)


def selection(**settings: Any) -> FairSelection:
    return FairSelection(SelectionConfig(**settings), gate=1.5)


def of(node: str, count: int, first: int = 0) -> list[Scored]:
    return [scored(LIVE, 1 + first + n, node, slot=first + n) for n in range(count)]


def pool_of(candidates: list[Scored]) -> Pool:
    pool = Pool()
    pool.add(candidates, round=1)
    return pool


# Which of the others' rollouts


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 15), st.integers(0, 2**63 - 1))
def test_live_ones_alone_and_as_many_as_there_are(lives: list[bool], n: int, seed: int) -> None:
    candidates = [scored(LIVE if live else DEAD, index) for index, live in enumerate(lives)]
    chosen = selection().choose_of_peers(candidates, n, seed)
    assert len(chosen) == min(n, sum(lives))
    assert all(entry.live for entry in chosen)
    assert len({entry.question.id.index for entry in chosen}) == len(chosen)
    assert chosen == selection().choose_of_peers(candidates, n, seed)


def test_all_are_equally_likely_and_seeds_differ() -> None:
    candidates = [scored(LIVE if index % 2 else DEAD, index) for index in range(20)]
    draws = [selection().choose_of_peers(candidates, 3, seed) for seed in range(4000)]
    counts = Counter(entry.question.id.index for draw in draws for entry in draw)
    assert sorted(counts) == list(range(1, 20, 2))
    assert all(abs(count - 1200) < 150 for count in counts.values())  # five standard deviations
    firsts = Counter(draw[0].question.id.index for draw in draws)
    assert all(abs(count - 400) < 100 for count in firsts.values())


def test_draws_are_what_they_were() -> None:
    """Studies repeat to the digit: a change of these changes all of them."""
    candidates = [scored(LIVE if index % 2 else DEAD, index) for index in range(20)]
    draws = [[e.question.id.index for e in selection().choose_of_peers(candidates, 4, seed)] for seed in (0, 7)]
    assert draws == [[13, 19, 1, 5], [11, 5, 13, 19]]


def test_distrusted_makers_are_considered_seldom() -> None:
    candidates = [msgspec.structs.replace(scored(LIVE, index), keep_probability=index / 4) for index in range(5)]
    drawn = Counter(
        e.question.id.index for seed in range(1000) for e in selection().choose_of_peers(candidates, 5, seed)
    )
    assert all(abs(drawn[index] - 250 * index) < 80 for index in range(5))
    assert drawn[4] == 1000
    assert drawn[0] == 0


# The batch


@pytest.mark.parametrize(
    ("own", "J", "offered", "expected"),
    [
        (DEAD, 1, 5, (1, 2)),  # both own ones are dead, and one of them stays
        (DEAD, 1, 2, (1, 2)),
        (DEAD, 1, 1, (2, 1)),
        (DEAD, 1, 0, (2, 0)),
        (DEAD, 0, 5, (2, 0)),  # nobody asked for others'
        (LIVE, 1, 5, (2, 1)),  # both are live
    ],
)
def test_others_live_rollouts_replace_own_dead_ones(
    own: tuple[float, ...], J: int, offered: int, expected: tuple[int, int]
) -> None:
    local = [scored(own, n, "ada", slot=n) for n in range(2)]
    pool = pool_of([scored(LIVE, 10 + n, "bob", slot=n) for n in range(offered)])
    batch = selection(fill=True).choose(local, pool, 2, J, seed=0)
    foreign = [entry for entry in batch if entry.from_peer]
    assert (len(batch) - len(foreign), len(foreign)) == expected
    assert len(pool) == offered - len(foreign)
    assert {entry.rollout.node for entry in foreign} <= {"bob"}


def test_without_fill_there_are_j_of_others() -> None:
    local = [scored(DEAD, n, "ada", slot=n) for n in range(2)]
    batch = selection(fill=False).choose(local, pool_of(of("bob", 5)), 2, 1, seed=0)
    assert [entry.from_peer for entry in batch] == [False, False, True]


def test_everything_is_sent() -> None:
    local = [scored(DEAD, 1, "ada"), scored(LIVE, 2, "ada")]
    assert selection().to_send(local) == [entry.rollout for entry in local]


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 9))
def test_of_own_ones_the_live_come_first_in_order_of_slot(lives: list[bool], n: int) -> None:
    own = [scored(LIVE if live else DEAD, slot, slot=slot) for slot, live in enumerate(lives)]
    slots = [entry.rollout.slot for entry in live_first(own, n)]
    assert len(slots) == min(n, len(own))
    assert slots == sorted(slots)
    live = [slot for slot, is_live in enumerate(lives) if is_live]
    assert [slot for slot in slots if lives[slot]] == live[:n]


# Newcomers


def test_newcomers_get_their_share_until_they_are_known() -> None:
    chooser = selection(newcomer_share=0.25)
    ada = of("ada", 16)
    assert len(chooser.choose_of_peers(ada[:15], 8, 0)) == 2
    assert len(chooser.choose_of_peers(ada[:15], 8, 1)) == 2  # the same rollouts do not count again
    assert len(chooser.choose_of_peers(ada, 8, 2)) == 8
    mixed = chooser.choose_of_peers(ada + of("eve", 5) + of("mel", 5), 8, 3)
    assert Counter(entry.rollout.node == "ada" for entry in mixed) == {True: 6, False: 2}
    assert len(chooser.choose_of_peers(of("zoe", 5), 2, 4)) == 1  # at least one


# Trust


def after(chooser: FairSelection, gated: dict[str, float], rounds: int = 20) -> Counter[str]:
    """How often the next 200 draws have each maker, after updates whose gate left out these shares of its successes."""
    pool = [entry for name in gated for entry in of(name, 16)]
    for seed in range(rounds):
        names = {entry.rollout.node for entry in chooser.choose_of_peers(pool, 4, seed)}
        chooser.on_update(UpdateResult(gated_shares={name: gated[name] for name in names}))
    return Counter(e.rollout.node for seed in range(200) for e in chooser.choose_of_peers(pool, 4, rounds + seed))


def test_a_maker_that_is_always_gated_leaves_the_places_to_the_others() -> None:
    without = after(selection(), {"ada": 0.0, "bea": 0.0, "eve": 1.0})
    drawn = after(selection(rule="trusting"), {"ada": 0.0, "bea": 0.0, "eve": 1.0})
    assert without["eve"] > 200
    assert drawn["eve"] < 80
    assert drawn["ada"] + drawn["bea"] > 720  # all places are taken


def test_a_maker_that_is_gated_now_and_then_comes_first_less_often_and_comes_back() -> None:
    chooser = selection(rule="trusting")
    assert 0.2 < after(chooser, {"ada": 0.0, "bob": 0.5}, 40)["bob"] / 800 < 0.45
    assert 0.4 < after(chooser, {"ada": 0.0, "bob": 0.0}, 40)["bob"] / 800 < 0.6
    chooser.on_update(UpdateResult(gated_shares={"zoe": 1.0}))  # nothing of zoe was chosen
    assert len(chooser._trust.record) == 2


def test_one_gated_success_halves_the_trust_in_a_stranger_however_much_it_sends() -> None:
    chooser = selection(rule="trusting")
    chooser.choose_of_peers([scored(LIVE, 1, "eve")], 4, 0)
    chooser.on_update(UpdateResult(gated_shares={"eve": 1.0}))
    pool = of("ada", 1) + of("eve", 64)
    drawn = Counter(entry.rollout.node for seed in range(400) for entry in chooser.choose_of_peers(pool, 1, seed))
    assert 0.65 < drawn["ada"] / 400 < 0.85  # without trust a half, by turns
    assert len(chooser.choose_of_peers(pool, 4, 0)) == 4  # places are not left empty


def test_who_is_a_newcomer_to_admission_is_one_however_much_it_sends() -> None:
    newcomers = Newcomers()
    loud = [msgspec.structs.replace(scored(index=n, node="eve"), newcomer=True) for n in range(100)]
    newcomers.observe([*loud, *(scored(index=n, node="ada") for n in range(16))])
    assert "eve" in newcomers
    assert "ada" not in newcomers


def test_a_newcomer_that_was_gated_is_distrusted_when_it_is_known() -> None:
    chooser = selection(rule="trusting", newcomer_share=0.5)
    for seed in range(4):
        names = {entry.rollout.node for entry in chooser.choose_of_peers(of("eve", 8), 4, seed)}
        chooser.on_update(UpdateResult(gated_shares=dict.fromkeys(names, 1.0)))
    pool = of("eve", 16) + of("ada", 16)
    chooser.choose_of_peers(pool, 4, 9)  # now both are known
    drawn = Counter(entry.rollout.node for seed in range(400) for entry in chooser.choose_of_peers(pool, 1, seed))
    assert drawn["eve"] < 80


def test_a_new_name_brings_no_new_trust() -> None:
    chooser = selection(rule="trusting", newcomer_share=0.5)
    known = of("ada", 16)
    for seed in range(30):
        crowd = [entry for n in range(4) for entry in of(f"eve {seed} {n}", 3)]
        names = {entry.rollout.node for entry in chooser.choose_of_peers(known + crowd, 4, seed)}
        chooser.on_update(UpdateResult(gated_shares={name: float(name != "ada") for name in names}))
    fresh = [entry for n in range(4) for entry in of(f"eve again {n}", 3)]
    drawn = Counter(e.rollout.node == "ada" for s in range(100) for e in chooser.choose_of_peers(known + fresh, 4, s))
    assert drawn[False] < 40
    assert drawn[True] > 360


def test_trust_needs_a_gate() -> None:
    with pytest.raises(UserError, match="peer-gate"):
        FairSelection(SelectionConfig(rule="trusting"), gate=0.0)


# State


def test_a_crowd_of_names_takes_no_memory_and_makes_nobody_a_stranger() -> None:
    chooser = selection(newcomer_share=0.5)
    chooser.choose_of_peers(of("ada", 16), 2, 0)
    for crowd in range(12):
        made_up = [scored(LIVE, 1000 * crowd + n, f"{crowd} {n}") for n in range(200)]
        assert len(chooser.choose_of_peers(made_up, 400, crowd)) >= 180
    counts, known = chooser._newcomers.counts, chooser._newcomers.known
    assert (len(counts), len(known)) == (1024, 1)
    assert len(chooser.choose_of_peers(of("ada", 4, first=20_000), 4, 0)) == 4


ANY_TEXT = st.text(st.characters(exclude_categories=()), max_size=20)
NAME = st.text(max_size=20)
"""As the wire has it, which is UTF-8: without half characters."""


@given(st.lists(st.tuples(NAME, st.lists(ANY_TEXT, min_size=1, max_size=4), st.integers(-(2**63), 2**63 - 1))))
def test_nothing_in_a_rollout_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[str, list[str], int]]
) -> None:
    candidates = []
    for name, answers, number in groups:
        asked = question(1)
        made = msgspec.structs.replace(rollout(asked), completions=tuple(map(Completion.of, answers)))
        made = msgspec.structs.replace(made, node=name, round=number, slot=number)
        candidates.append(Scored(made, asked, tuple(float(n == 0) for n in range(len(answers)))))
    chooser = selection(newcomer_share=0.5, rule="trusting")
    assert len(chooser.choose_of_peers(candidates, 3, 0)) <= 3
    folder: Path = tmp_path_factory.mktemp("selection")
    chooser.save(folder)
    chooser.load(folder)


MAKERS = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3), st.booleans()), max_size=20)


@given(MAKERS, MAKERS)
def test_a_loaded_selection_goes_on_exactly(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[str, int, bool]], now: list[tuple[str, int, bool]]
) -> None:
    def candidates(groups: list[tuple[str, int, bool]], round: int) -> list[Scored]:
        entries = [scored(LIVE if live else DEAD, i, node, slot=n) for n, (node, i, live) in enumerate(groups)]
        return [msgspec.structs.replace(e, rollout=msgspec.structs.replace(e.rollout, round=round)) for e in entries]

    one, other = (selection(newcomer_share=0.3, rule="trusting") for _ in range(2))
    one.choose([scored((0.0, 0.1))], pool_of(candidates(before, 1)), 1, 3, seed=0)
    one.on_update(UpdateResult(gradient_shares={"a": 0.5}, gated_shares={"b": 1.0}))
    folder: Path = tmp_path_factory.mktemp("selection")
    one.save(folder)
    other.load(folder)
    both = candidates(before, 1) + candidates(now, 2)
    batches = [each.choose([scored((0.0, 1.0))], pool_of(both), 1, 4, seed=1) for each in (one, other)]
    assert batches[0] == batches[1]
