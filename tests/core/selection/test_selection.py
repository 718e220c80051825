"""Selection: live rollouts, each as likely as the other, with others' in place of own dead ones."""

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
from shoal.protocols import UpdateResult
from shoal.rollout import Completion, Scored
from shoal.selection.pool import Pool
from shoal.selection.selection import FairSelection, live_first

LIVE, DEAD = (1.0, 0.0), (1.0, 1.0)


def selection(**settings: Any) -> FairSelection:
    return FairSelection(SelectionConfig(**settings))


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


# State


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
    chooser = selection()
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

    one, other = (selection() for _ in range(2))
    one.choose([scored((0.0, 0.1))], pool_of(candidates(before, 1)), 1, 3, seed=0)
    one.on_update(UpdateResult(gradient_shares={"a": 0.5}))
    folder: Path = tmp_path_factory.mktemp("selection")
    one.save(folder)
    other.load(folder)
    both = candidates(before, 1) + candidates(now, 2)
    batches = [each.choose([scored((0.0, 1.0))], pool_of(both), 1, 4, seed=1) for each in (one, other)]
    assert batches[0] == batches[1]
