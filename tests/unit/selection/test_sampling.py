"""Samplers: rollouts that carry a gradient, each as likely as the other, or preferred and limited as settings say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from fakes import question, rollout, scored
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.selection import SamplingConfig
from shoal.errors import UserError
from shoal.rollout import Completion, Scored
from shoal.selection.samplers import NAMES, RECENT, SelectiveSampler, UniformSampler, live_first, make_sampler

SAMPLER = UniformSampler()
LIVE, DEAD = (1.0, 0.0), (1.0, 1.0)


def selective(**settings: Any) -> SelectiveSampler:
    return SelectiveSampler(SamplingConfig(**settings))


def shares(sampler: SelectiveSampler, candidates: Sequence[Scored], n: int = 1, draws: int = 2000) -> Counter[str]:
    """How often the rollouts of each task are drawn."""
    drawn = (entry for seed in range(draws) for entry in sampler.sample(candidates, n, seed))
    return Counter(entry.question.id.task for entry in drawn)


@given(st.lists(st.booleans(), max_size=12), st.integers(0, 15), st.integers(0, 2**63 - 1))
@pytest.mark.parametrize("sampler", [SAMPLER, selective()], ids=["uniform", "selective"])
def test_live_ones_alone_and_as_many_as_there_are(
    sampler: UniformSampler | SelectiveSampler, lives: list[bool], n: int, seed: int
) -> None:
    candidates = [scored(LIVE if live else DEAD, index) for index, live in enumerate(lives)]
    chosen = sampler.sample(candidates, n, seed)
    assert len(chosen) == min(n, sum(lives))
    assert all(entry.live for entry in chosen)
    assert len({entry.question.id.index for entry in chosen}) == len(chosen)
    assert chosen == sampler.sample(candidates, n, seed)


@pytest.mark.parametrize("sampler", [SAMPLER, selective(), selective(learnability=2.0)], ids=str)
def test_all_are_equally_likely_and_seeds_differ(sampler: UniformSampler | SelectiveSampler) -> None:
    candidates = [scored(LIVE if index % 2 else DEAD, index) for index in range(20)]
    draws = [sampler.sample(candidates, 3, seed) for seed in range(4000)]
    counts = Counter(entry.question.id.index for draw in draws for entry in draw)
    assert sorted(counts) == list(range(1, 20, 2))
    assert all(abs(count - 1200) < 150 for count in counts.values())  # five standard deviations
    firsts = Counter(draw[0].question.id.index for draw in draws)
    assert all(abs(count - 400) < 100 for count in firsts.values())


def test_the_paper_s_draws_are_what_they_were() -> None:
    candidates = [scored(LIVE if index % 2 else DEAD, index) for index in range(20)]
    draws = [[entry.question.id.index for entry in SAMPLER.sample(candidates, 4, seed)] for seed in (0, 7)]
    assert draws == [[13, 19, 1, 5], [11, 5, 13, 19]]


def test_dead_ones_are_not_taken_where_live_ones_are_few() -> None:
    assert SAMPLER.sample([scored(DEAD, 1), scored(LIVE, 2)], 2, 0) == [scored(LIVE, 2)]
    assert SAMPLER.sample([scored(DEAD, 1)], 2, 0) == []
    assert SAMPLER.sample([], 2, 0) == []


def test_the_settings_as_they_stand_are_the_paper_s() -> None:
    assert isinstance(make_sampler(SamplingConfig(), 0), UniformSampler)
    assert isinstance(make_sampler(SamplingConfig(adapt="both"), 0), UniformSampler)
    for settings in ({"learnability": 1.0}, {"max_per_peer": 1}, {"keep_solved": True}, {"newcomer_share": 0.5}):
        assert isinstance(make_sampler(SamplingConfig.model_validate(settings), 1.5), SelectiveSampler)


# Of own ones


@given(st.lists(st.booleans(), max_size=8), st.integers(0, 9))
def test_of_own_ones_the_live_come_first_in_order_of_slot(lives: list[bool], n: int) -> None:
    own = [scored(LIVE if live else DEAD, slot, slot=slot) for slot, live in enumerate(lives)]
    chosen = live_first(own, n)
    slots = [entry.rollout.slot for entry in chosen]
    assert len(chosen) == min(n, len(own))
    assert slots == sorted(slots)
    assert sum(entry.live for entry in chosen) == min(n, sum(lives))
    live = [slot for slot, is_live in enumerate(lives) if is_live]
    assert [slot for slot in slots if lives[slot]] == live[:n]


# Preference


def test_success_is_a_mean_and_then_a_moving_mean() -> None:
    sampler = selective()
    sampler.observe([scored((1.0, 0.0)), scored((0.0, 0.0)), scored((1.0, 1.0), task="other")])
    assert {task: p for (task, _), (p, _) in sampler.success.items()} == {"say": 0.25, "other": 1.0}
    for _ in range(60):
        sampler.observe([scored((1.0, 1.0))])
    assert next(iter(sampler.success.values()))[0] == pytest.approx(1, abs=0.01)
    sampler.observe([scored((0.0, 0.0))])
    assert next(iter(sampler.success.values()))[0] == pytest.approx(0.9, abs=0.01)


def test_tasks_solved_half_of_the_time_are_preferred() -> None:
    candidates = [scored(LIVE, task=task) for task in ("never", "half", "always", "unknown")]
    drawn = {}
    for learnability in (0.0, 0.5, 1.0, 4.0):
        sampler = selective(learnability=learnability)
        sampler.observe([scored((0.0, 0.0), task="never"), scored(LIVE, task="half"), scored(DEAD, task="always")])
        drawn[learnability] = shares(sampler, candidates)
    assert all(abs(count - 500) < 100 for count in drawn[0.0].values())
    halves = [drawn[power]["half"] for power in (0.0, 0.5, 1.0)]
    assert halves == sorted(halves)
    assert halves[2] - halves[0] > 200
    counts = drawn[1.0]  # weights 0.19, 1, 0.19, 1
    assert abs(counts["half"] - counts["unknown"]) < 150
    assert abs(counts["never"] - counts["always"]) < 100
    assert 100 < counts["never"] < 250
    assert drawn[4.0]["never"] < 20


def test_any_power_can_be_had() -> None:
    sampler = selective(learnability=1e6)
    sampler.observe([scored((0.0, 0.0), task="never"), scored(LIVE, task="half")])
    candidates = [scored(LIVE, task="never"), scored(LIVE, task="half")]
    assert shares(sampler, candidates, draws=50) == {"half": 50}
    assert len(sampler.sample(candidates, 2, 0)) == 2


@pytest.mark.parametrize("sampler", [SAMPLER, selective()], ids=["uniform", "selective"])
def test_distrusted_ones_are_considered_seldom(sampler: UniformSampler | SelectiveSampler) -> None:
    candidates = [msgspec.structs.replace(scored(LIVE, index), weight=index / 4) for index in range(5)]
    drawn = Counter(e.question.id.index for seed in range(1000) for e in sampler.sample(candidates, 5, seed))
    assert all(abs(drawn[index] - 250 * index) < 80 for index in range(5))
    assert drawn[4] == 1000
    assert drawn[0] == 0


# Quotas

MAKERS, TEXTS = st.sampled_from("abc"), st.integers(1, 3)
GROUPS = st.lists(st.tuples(MAKERS, TEXTS, st.booleans()), max_size=20)


@given(
    GROUPS,
    st.integers(0, 9),
    st.integers(0, 3),
    st.integers(0, 3),
    st.booleans(),
    st.sampled_from([0.1, 0.5, 1.0]),
    st.booleans(),
    st.integers(0, 99),
)
def test_quotas_hold(
    groups: list[tuple[str, int, bool]],
    n: int,
    per_peer: int,
    per_question: int,
    drop: bool,
    share: float,
    keep: bool,
    seed: int,
) -> None:
    settings = {
        "max_per_peer": per_peer,
        "max_per_question": per_question,
        "drop_duplicates": drop,
        "newcomer_share": share,
        "keep_solved": keep,
    }
    candidates = [
        scored(LIVE if live else DEAD, index, node, slot=slot) for slot, (node, index, live) in enumerate(groups)
    ]

    def draw() -> list[Scored]:
        sampler = selective(**settings)
        sampler.observe([scored((0.0, 0.0))])
        return sampler.sample(candidates, n, seed)

    chosen = draw()
    assert chosen == draw()
    assert len(chosen) <= n
    assert len({id(entry.rollout) for entry in chosen}) == len(chosen)
    assert all(entry.live or (keep and entry.baseline == 0.0) for entry in chosen)
    assert all(entry.instructive for entry in chosen)
    peers = Counter(entry.rollout.node for entry in chosen)
    questions = Counter(entry.question.id.index for entry in chosen)
    answers = Counter((entry.question.id.index, entry.rewards) for entry in chosen)
    assert not per_peer or max(peers.values(), default=0) <= per_peer
    assert not per_question or max(questions.values(), default=0) <= per_question
    assert not drop or max(answers.values(), default=0) <= 1
    met = Counter(node for node, _, _ in groups)
    if share < 1:
        assert sum(count for node, count in peers.items() if met[node] < 16) <= max(1, int(share * n))


def test_a_duplicate_does_not_use_up_a_quota() -> None:
    same, other = scored(LIVE, 1), scored((1.0, 0.0, 0.0), 1)
    for seed in range(50):
        sampler = selective(drop_duplicates=True, max_per_question=2, max_per_peer=2)
        assert len(sampler.sample([same, same, same, other], 4, seed)) == 2


def answered(*answers: str, index: int = 1, node: str = "bob") -> Scored:
    asked = question(index)
    return Scored(rollout(asked, answers, node), asked, tuple(float(n == 0) for n in range(len(answers))))


def test_the_same_answers_to_the_same_question_are_learned_from_once() -> None:
    sampler = selective(drop_duplicates=True)
    assert len(sampler.sample([answered("a", "b", "b"), answered("b", " a ", "b", node="eve")], 2, 0)) == 1
    assert sampler.sample([answered("b", "b", "a\n", node="mel")], 2, 1) == []
    others = [answered("a", "a", "b"), answered("ab", "", "b"), answered("a", "b", "b", index=2)]
    assert len(sampler.sample(others, 3, 2)) == 3
    assert len(selective().sample([answered("a", "b")] * 2, 2, 0)) == 2


def test_what_was_not_chosen_is_no_duplicate_of_itself() -> None:
    sampler = selective(drop_duplicates=True)
    both = [answered("a", "b", index=1), answered("a", "b", index=2)]
    first = sampler.sample(both, 1, 0)
    left = [entry for entry in both if entry not in first]
    assert sampler.sample(both, 2, 1) == left


# Groups that are right throughout


@pytest.mark.parametrize(
    ("own", "kept"), [((0.0,) * 8, True), ((1.0,) + (0.0,) * 7, True), (LIVE, False), (None, False)]
)
def test_solved_groups_teach_what_a_node_seldom_solves(own: tuple[float, ...] | None, kept: bool) -> None:
    sampler = selective(keep_solved=True)
    if own:
        sampler.observe([scored(own)])
    solved, failed, nearly = scored(DEAD, 2), scored((0.0, 0.0), 3), scored((0.99, 0.99), 4)
    chosen = sampler.sample([solved, failed, nearly], 3, 0)
    assert [entry.rollout for entry in chosen] == ([solved.rollout] if kept else [])
    assert all(own and entry.baseline == sum(own) / len(own) and entry.instructive for entry in chosen)
    off = selective()
    off.observe([scored((0.0, 0.0))])
    assert off.sample([solved], 1, 0) == []


def test_a_live_group_keeps_its_own_mean() -> None:
    sampler = selective(keep_solved=True)
    sampler.observe([scored((0.0, 0.0))])
    assert sampler.sample([scored(LIVE, 2)], 1, 0)[0].baseline is None


# Single completions, as people and programs give them


def samplers() -> list[UniformSampler | SelectiveSampler]:
    return [UniformSampler(), selective(), selective(learnability=1.0, max_per_peer=4)]


@pytest.mark.parametrize("which", range(3))
@pytest.mark.parametrize(
    ("own", "reward", "baseline"),
    [
        (None, 1.0, None),  # it knows nothing of the task
        ((0.0, 0.0, 0.0, 1.0), 1.0, 0.25),
        ((0.0, 0.0, 0.0, 1.0), 0.0, 0.25),
        ((0.0, 0.0), 1.0, 0.0),
        ((0.0, 0.0), 0.0, None),  # no more than was to be expected
        ((1.0, 1.0), 1.0, None),
        ((1.0, 1.0), 0.0, 1.0),
        ((1.0,) * 49 + (0.0,), 1.0, None),
        ((1.0,) * 9 + (0.0,), 1.0, 0.9),
    ],
)
def test_a_single_completion_is_compared_with_what_the_node_itself_does(
    which: int, own: tuple[float, ...] | None, reward: float, baseline: float | None
) -> None:
    sampler = samplers()[which]
    sampler.observe([scored((1.0, 0.0), task="other"), *([scored(own)] if own else [])])
    single = scored((reward,), 2)
    chosen = sampler.sample([single], 3, 0)
    assert [entry.baseline for entry in chosen] == ([] if baseline is None else [pytest.approx(baseline)])
    assert all(entry.instructive and entry.rollout is single.rollout for entry in chosen)


@pytest.mark.parametrize("which", range(3))
def test_single_completions_change_nothing_for_the_others(which: int) -> None:
    """Neither are groups of two given a baseline, nor do singles that teach nothing move a draw."""
    groups = [scored(LIVE if index % 2 else DEAD, index, slot=index) for index in range(20)]
    knowing, ignorant = samplers()[which], samplers()[which]
    knowing.observe([scored((1.0, 0.0)), scored((1.0, 1.0), task="solved")])
    useless = [scored((1.0,), 30 + n, task="solved") for n in range(5)]
    for seed in range(20):
        chosen = knowing.sample(groups + (useless if which == 0 else []), 4, seed)
        assert chosen == ignorant.sample(groups, 4, seed)
        assert all(entry.baseline is None for entry in chosen)


def test_distrusted_singles_are_considered_seldom() -> None:
    sampler = UniformSampler()
    sampler.observe([scored((0.0, 0.0))])
    single = msgspec.structs.replace(scored((1.0,), 2), weight=0.25)
    assert abs(sum(len(sampler.sample([single], 1, seed)) for seed in range(1000)) - 250) < 80


def test_what_a_node_solves_outlives_it(tmp_path: Path) -> None:
    for number, (before, after) in enumerate(zip(samplers(), samplers(), strict=True)):
        before.observe([scored((1.0, 0.0, 0.0, 0.0))])
        folder = tmp_path / str(number)
        folder.mkdir()
        after.load(folder)  # of before it was kept
        assert after.success == {}
        before.save(folder)
        after.load(folder)
        assert after.success == before.success != {}
        assert after.sample([scored((1.0,), 2)], 1, 0)[0].baseline == 0.25


# Newcomers


def of(node: str, count: int, first: int = 0) -> list[Scored]:
    return [scored(LIVE, 1 + first + n, node, slot=first + n) for n in range(count)]


def test_newcomers_get_their_share_until_they_are_known() -> None:
    sampler = selective(newcomer_share=0.25)
    ada = of("ada", 16)
    assert len(sampler.sample(ada[:15], 8, 0)) == 2
    assert len(sampler.sample(ada[:15], 8, 1)) == 2  # the same ones do not count again
    assert len(sampler.sample(ada, 8, 2)) == 8
    mixed = sampler.sample(ada + of("eve", 5) + of("mel", 5), 8, 3)
    assert Counter(entry.rollout.node == "ada" for entry in mixed) == {True: 6, False: 2}
    assert len(sampler.sample(of("zoe", 5), 2, 4)) == 1  # at least one


# Trust


def gated(sampler: SelectiveSampler, by: dict[str, float], rounds: int = 20) -> Counter[str]:
    """After updates of which the gate left out those shares of each maker's successes: whom the next 200 draws have."""
    pool = [entry for name in by for entry in of(name, 16)]
    for seed in range(rounds):
        names = {entry.rollout.node for entry in sampler.sample(pool, 4, seed)}
        sampler.heed({f"gated/from/{name}": by[name] for name in names} | {"loss": 0.0})
    return Counter(entry.rollout.node for seed in range(200) for entry in sampler.sample(pool, 4, rounds + seed))


def test_who_is_always_gated_leaves_the_places_to_the_others() -> None:
    without = gated(selective(max_per_peer=2), {"ada": 0.0, "bea": 0.0, "eve": 1.0})
    drawn = gated(selective(max_per_peer=2, trust=True), {"ada": 0.0, "bea": 0.0, "eve": 1.0})
    assert without["eve"] > 200
    assert drawn["eve"] < 80
    assert drawn["ada"] + drawn["bea"] > 720  # all places are taken


def test_who_is_gated_now_and_then_is_heard_as_often_less_and_comes_back() -> None:
    sampler = selective(trust=True)
    assert 0.2 < gated(sampler, {"ada": 0.0, "bob": 0.5}, 40)["bob"] / 800 < 0.45
    assert 0.4 < gated(sampler, {"ada": 0.0, "bob": 0.0}, 40)["bob"] / 800 < 0.6
    sampler.heed({"gated/from/zoe": 1.0})  # of whom nothing was chosen
    assert len(sampler._trust.state()) == 2  # type: ignore[union-attr]


def test_one_success_that_was_gated_halves_the_trust_in_a_stranger_however_much_it_sends() -> None:
    sampler = selective(trust=True)
    sampler.sample([scored((1, 0), 1, "eve")], 4, 0)
    sampler.heed({"gated/from/eve": 1.0})
    pool = of("ada", 1) + of("eve", 64)
    drawn = Counter(entry.rollout.node for seed in range(400) for entry in sampler.sample(pool, 1, seed))
    assert 0.65 < drawn["ada"] / 400 < 0.85  # without trust a half, by turns
    assert len(sampler.sample(pool, 4, 0)) == 4  # places are not left empty


def test_who_was_gated_as_a_newcomer_is_still_when_known() -> None:
    sampler = selective(trust=True, newcomer_share=0.5)
    for seed in range(4):
        names = {entry.rollout.node for entry in sampler.sample(of("eve", 8), 4, seed)}
        sampler.heed(dict.fromkeys((f"gated/from/{name}" for name in names), 1.0))
    pool = of("eve", 16) + of("ada", 16)
    sampler.sample(pool, 4, 9)  # now both are known
    drawn = Counter(entry.rollout.node for seed in range(400) for entry in sampler.sample(pool, 1, seed))
    assert drawn["eve"] < 80


def test_a_new_name_is_no_new_trust() -> None:
    sampler = selective(trust=True, newcomer_share=0.5)
    known = of("ada", 16)
    for seed in range(30):
        crowd = [entry for n in range(4) for entry in of(f"eve {seed} {n}", 3)]
        names = {entry.rollout.node for entry in sampler.sample(known + crowd, 4, seed)}
        sampler.heed({f"gated/from/{name}": float(name != "ada") for name in names})
    fresh = [entry for n in range(4) for entry in of(f"eve again {n}", 3)]
    drawn = Counter(e.rollout.node == "ada" for seed in range(100) for e in sampler.sample(known + fresh, 4, seed))
    assert drawn[False] < 40
    assert drawn[True] > 360


def test_trust_is_kept_and_needs_a_gate(tmp_path: Path) -> None:
    sampler, again = selective(trust=True), selective(trust=True)
    gated(sampler, {"ada": 0.0, "eve": 1.0})
    sampler.save(tmp_path)
    again.load(tmp_path)
    assert again._state() == sampler._state()
    assert isinstance(make_sampler(SamplingConfig(trust=True), 1.5), SelectiveSampler)
    with pytest.raises(UserError, match=r"external\.gate"):
        make_sampler(SamplingConfig(trust=True), 0.0)


def test_a_crowd_of_names_takes_no_memory_and_makes_nobody_a_stranger() -> None:
    sampler = selective(newcomer_share=0.5, drop_duplicates=True)
    sampler.sample(of("ada", 16), 2, 0)
    for crowd in range(12):
        chosen = sampler.sample([scored(LIVE, 1000 * crowd + n, f"{crowd} {n}") for n in range(200)], 400, crowd)
        assert len(chosen) >= 180
    assert len(sampler._newcomers) == NAMES
    assert len(sampler._recent) == RECENT
    assert len(sampler._known) == 1
    assert len(sampler.sample(of("ada", 4, first=20_000), 4, 0)) == 4


# Whatever comes


@given(
    st.lists(
        st.tuples(
            st.text(st.characters(exclude_categories=()), max_size=20),
            st.lists(st.text(st.characters(exclude_categories=()), max_size=20), min_size=1, max_size=4),
            st.integers(-(2**63), 2**63 - 1),
        ),
        max_size=6,
    )
)
def test_nothing_in_a_rollout_breaks_it(
    tmp_path_factory: pytest.TempPathFactory, groups: list[tuple[str, list[str], int]]
) -> None:
    sampler = selective(drop_duplicates=True, newcomer_share=0.5, max_per_peer=2, max_per_question=2, keep_solved=True)
    candidates = []
    for name, answers, number in groups:
        asked = question(1)
        made = msgspec.structs.replace(rollout(asked), completions=tuple(map(Completion.of, answers)))
        made = msgspec.structs.replace(made, node=name, round=number, slot=number)
        candidates.append(Scored(made, asked, tuple(float(n == 0) for n in range(len(answers)))))
    assert len(sampler.sample(candidates, 3, 0)) <= 3
    folder: Path = tmp_path_factory.mktemp("sampler")
    sampler.save(folder)
    sampler.load(folder)


@given(GROUPS, GROUPS)
def test_a_loaded_sampler_goes_on_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory, before: list[tuple[str, int, bool]], after: list[tuple[str, int, bool]]
) -> None:
    def candidates(groups: list[tuple[str, int, bool]], round: int) -> list[Scored]:
        made = []
        for slot, (node, index, live) in enumerate(groups):
            entry = scored(LIVE if live else DEAD, index, node, slot=slot)
            made.append(msgspec.structs.replace(entry, rollout=msgspec.structs.replace(entry.rollout, round=round)))
        return made

    settings = {"learnability": 0.5, "drop_duplicates": True, "newcomer_share": 0.3, "keep_solved": True}
    sampler, other = selective(**settings), selective(**settings)
    sampler.observe([scored((0.0, 0.1))])
    sampler.sample(candidates(before, 1), 3, 0)
    folder: Path = tmp_path_factory.mktemp("sampler")
    sampler.save(folder)
    other.load(folder)
    for both in (sampler, other):
        both.observe([scored((0.0, 1.0, 0.3))])
    now = candidates(before, 1) + candidates(after, 2)
    assert other.sample(now, 4, 1) == sampler.sample(now, 4, 1)
    assert vars(other) == vars(sampler)
    assert list(other._newcomers) == list(sampler._newcomers)
    assert list(other._recent) == list(sampler._recent)
