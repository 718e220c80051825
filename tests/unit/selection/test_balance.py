"""How I and J move."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from fakes import Student, join, make_node, question, rollout
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.external import ExternalConfig
from shoal.config.selection import SamplingConfig
from shoal.config.settings import Config
from shoal.config.swarm import SwarmConfig
from shoal.errors import UserError
from shoal.node import Node
from shoal.protocols import UpdateResult
from shoal.selection.balance import PAUSE, PERIOD, Balance, Sign, make_balance
from shoal.swarm.memory import MemorySwarm


def play(balance: Balance, rounds: int, ess: float | None = None, reward: float | None = None) -> list[int]:
    """J after each round."""
    course = []
    for _ in range(rounds):
        balance.observe({} if ess is None else {"external/ess": ess}, reward)
        course.append(balance.external)
    return course


def climb(balance: Balance, rounds: int, slope: Callable[[int], float]) -> list[int]:
    """J after each period, where reward rises by `slope` of J in each round."""
    reward, course = 0.0, []
    for round in range(rounds):
        reward += slope(balance.external)
        balance.observe({}, reward)
        if round % PERIOD == PERIOD - 1:
            course.append(balance.external)
    return course


def test_where_few_count_there_are_to_be_fewer() -> None:
    balance = Balance(4, 4, "ess")
    course = play(balance, 40, ess=0.2)
    assert course[:PAUSE] == [4] * (PAUSE - 1) + [3]
    assert course[2 * PAUSE - 1] == 2
    assert course[-1] == 1
    assert (balance.local, balance.external) == (7, 1)


def test_where_all_count_there_are_to_be_more() -> None:
    balance = Balance(4, 4, "ess")
    assert play(balance, 60, ess=1.0)[-1] == 7
    assert balance.local == 1


def test_between_the_two_nothing_moves_and_nothing_known_moves_nothing() -> None:
    assert set(play(Balance(4, 4, "ess"), 40, ess=0.65)) == {4}
    assert set(play(Balance(4, 4, "ess"), 40)) == {4}
    assert set(play(Balance(4, 4, "ess"), 40, ess=float("nan"))) == {4}
    assert set(play(Balance(4, 4, "progress"), 99, ess=0.1)) == {4}  # no rewards, and not its sign
    assert set(play(Balance(4, 4, "ess"), 99, reward=0.5)) == {4}


def test_one_bad_round_is_no_sign() -> None:
    balance = Balance(4, 4, "ess")
    play(balance, 9, ess=0.7)
    assert set(play(balance, 1, ess=0.0) + play(balance, 9, ess=0.7)) == {4}


@given(st.integers(0, 5), st.integers(1, 5), st.sampled_from(["ess", "progress", "both"]), st.data())
def test_the_sum_stays_and_moves_are_few(local: int, external: int, sign: Sign, data: st.DataObject) -> None:
    balance, last = Balance(local, external, sign), -PAUSE
    for round in range(60):
        before = balance.external
        balance.observe({"external/ess": data.draw(st.floats(0, 1))}, data.draw(st.none() | st.floats(0, 1)))
        assert balance.local + balance.external == local + external
        assert abs(balance.external - before) <= 1
        if balance.external != before:
            assert round - last >= PAUSE or last < 0
            assert balance.external >= 1
            assert balance.local >= 1
            last = round


@pytest.mark.parametrize("best", [2, 6])
def test_it_climbs_to_where_reward_rises_fastest(best: int) -> None:
    course = climb(Balance(4, 4, "progress"), 40 * PERIOD, lambda external: 0.01 - 0.001 * abs(external - best))
    assert all(abs(external - best) <= 1 for external in course[15:])
    assert course.count(best) > 15


def test_a_move_that_slows_progress_is_taken_back_and_the_other_way_tried() -> None:
    course = climb(Balance(4, 4, "progress"), 8 * PERIOD, lambda external: 0.01 / external)
    assert course == [5, 4, 3, 2, 1, 1, 2, 1]  # at 1 it turns, and finds that there is nothing better


def test_of_both_signs_effective_samples_decide_first() -> None:
    balance = Balance(4, 4, "both")
    assert play(balance, 60, ess=0.2, reward=0.5)[-1] == 1
    assert set(play(balance, 60, ess=0.2, reward=0.5)) == {1}  # progress does not undo it
    between = Balance(4, 4, "both")
    assert len(set(play(between, 60, ess=0.65, reward=0.5))) > 1


@pytest.mark.parametrize("sign", ["ess", "progress", "both"])
@given(st.lists(st.tuples(st.none() | st.floats(0, 1), st.none() | st.floats(0, 1)), max_size=80), st.integers(0, 60))
def test_a_loaded_one_goes_on_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory,
    sign: Sign,
    rounds: list[tuple[float | None, float | None]],
    kill: int,
) -> None:
    folder: Path = tmp_path_factory.mktemp("balance")
    balance = Balance(4, 4, sign)
    for number, (ess, reward) in enumerate(rounds):
        if number == kill:
            balance.save(folder)
            again = Balance(4, 4, sign)
            again.load(folder)
            assert vars(again) == vars(balance)
            balance = again
        balance.observe({} if ess is None else {"external/ess": ess}, reward)


def test_settings() -> None:
    def made(adapt: Sign | str, **swarm: int) -> Balance | None:
        config = Config(
            swarm=SwarmConfig(**swarm),
            sampling=SamplingConfig(adapt=adapt),  # type: ignore[arg-type]
            external=ExternalConfig(weight="topr"),
        )
        assert (make_balance(config) is None) == (make_balance(config.resolved()) is None)
        return make_balance(config.resolved())

    assert made("none") is None
    assert made("ess", external=0) is None
    assert made("ess", local=0, external=1) is None
    usual = made("both", local=3, external=5)
    assert usual is not None
    assert usual.shares == (3, 5, 3)
    play(usual, PAUSE, ess=0.0)
    assert usual.shares == (4, 4, 4)
    more = made("ess", local=2, external=6, asked=4)
    assert more is not None
    assert play(more, 60, ess=0.0)[-1] == 4
    assert more.shares == (4, 4, 4)
    assert play(more, 60, ess=1.0)[-1] == 7
    assert more.shares == (1, 7, 4)


def test_without_weights_there_is_no_effective_sample_size() -> None:
    for adapt in ("ess", "both"):
        with pytest.raises(UserError, match=r"external\.weight topr"):
            make_balance(Config(sampling=SamplingConfig(adapt=adapt), external=ExternalConfig(weight="none")))
        gated = ExternalConfig(weight="none", gate=1.0)
        assert make_balance(Config(sampling=SamplingConfig(adapt=adapt), external=gated)) is not None
        assert make_balance(Config(sampling=SamplingConfig(adapt=adapt))) is not None  # by topr
    assert make_balance(Config(sampling=SamplingConfig(adapt="progress"))) is not None


class Measured(Student):
    """A learner whose external rollouts never count for much."""

    def update(self, scored, seed=0):  # type: ignore[no-untyped-def]
        return UpdateResult(super().update(scored, seed).metrics | {"external/ess": 0.1})


def test_a_node_moves_and_is_resumed_where_it_was(tmp_path: Path) -> None:
    def made() -> Node:
        swarm = MemorySwarm()
        join(swarm, "bob").share([rollout(question(n)) for n in range(6, 10)])
        return make_node("ada", swarm, local=2, external=2, balance=Balance(2, 2, "ess"), learner=Measured())

    ada = made()
    seen = []
    for _ in range(2 * PAUSE):
        ada.act()
        lesson = ada.learn()
        seen.append((ada.local, ada.external))
        assert len(lesson.own) == len(lesson.learned) == ada.local == ada.asked
    assert seen == [(2, 2)] * PAUSE + [(3, 1)] * PAUSE
    ada.save(tmp_path / "ada")
    again = made()
    again.load(tmp_path / "ada")
    for node in (ada, again):
        node.act()
        node.learn()
    assert (again.local, again.external, again.asked) == (ada.local, ada.external, ada.asked) == (3, 1, 3)
    assert again.balance is not None
    assert ada.balance is not None
    assert vars(again.balance) == vars(ada.balance)
