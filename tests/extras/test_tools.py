"""Environments in the shape of TRL's `environment_factory`."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lookup import Lookup

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.rollout import Question
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks, create_task
from shoal.tasks.environments.task import EnvironmentTask
from shoal_extras.tools import Tools, call_in


class Shop:
    """Find out what two things cost."""

    def __init__(self, tax: int = 0) -> None:
        self.tax = tax
        self.asked: set[str] = set()

    def reset(self, seed: int) -> str:
        self.prices = {"pear": seed % 10, "plum": seed % 7}
        return f"What do a pear and a plum cost at {seed % 1000}?"

    def price(self, item: str) -> int:
        """The price of an item.

        Args:
            item: what it is.
        """
        self.asked.add(item)
        return self.prices[item] + self.tax

    def _secret(self) -> str:
        return "never called"

    def get_reward(self) -> float:
        return len(self.asked) / 2


class Row:
    """Gets a row of a data set, and has no reward of its own."""

    def reset(self, **row: Any) -> None:
        self.row = row

    def colour(self) -> str:
        return str(self.row["colour"])


def call(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def test_the_policy_is_told_what_it_can_call() -> None:
    words = Tools(Shop).begin(7)
    assert words.startswith("What do a pear and a plum cost at 7?")
    assert '{"name": "price", "arguments": {"item": "str"}}: The price of an item.' in words
    assert "_secret" not in words
    assert "get_reward" not in words


def test_a_conversation_with_calls() -> None:
    shop = Tools(Shop, tax=1)
    shop.begin(25)
    assert shop.answer("I ask: " + call("price", item="pear")) == ("6", False)
    assert shop.score() == 0.5
    assert shop.answer(call("price", item="plum")) == ("5", False)
    assert shop.answer("They cost 11.") == ("", True)
    assert shop.score() == 1


@pytest.mark.parametrize(
    "turn", [call("price"), call("price", item="nut"), call("price", item=[1]), call("_secret"), call("reset", seed=1)]
)
def test_a_wrong_call_is_answered_with_what_is_wrong(turn: str) -> None:
    shop = Tools(Shop)
    shop.begin(25)
    said, ended = shop.answer(turn)
    assert said.startswith("error: ")
    assert not ended


def test_rows_of_a_data_set() -> None:
    rows = [
        {"prompt": "Which colour?", "colour": "red"},
        {"prompt": [{"role": "user", "content": "Say it."}], "colour": "blue"},
    ]
    talk = Tools(Row, rows)
    assert talk.begin(2).startswith("Which colour?\n\nFunctions:")
    assert talk.answer(call("colour")) == ("red", False)
    assert talk.begin(3).startswith("Say it.")
    assert talk.answer(call("colour")) == ("blue", False)
    assert talk.score() == 0


def test_it_is_a_task_by_its_name_alone() -> None:
    spec = TaskSpec(name="test_tools:Shop", parameters={"tax": 2})
    task = create_task(spec)
    assert isinstance(task, EnvironmentTask)
    question = task.question(1, 0)
    assert (question.turns, task.name) == (8, "shop")
    with Verifier(TasksConfig(sources=[spec], partial_credit=True)) as verifier:
        identity = Tasks(verifier.config).draw(1, "key")[0].id
        [result] = verifier.replay([(identity, (call("price", item="pear"), "so"))])
        assert (result.score, result.ended, len(result.observations)) == (0.5, True, 2)


class Priced(Shop):
    """A reward of any size; None: it does not apply, as in TRL."""

    def get_reward(self) -> float | None:  # type: ignore[override]
        return {0: None, 1: -3.5, 2: 7.0}[len(self.asked)]


def test_its_reward_is_learned_from_as_it_is() -> None:
    with Verifier(TasksConfig(sources=[TaskSpec(name="test_tools:Priced")], partial_credit=True)) as verifier:
        identity = Tasks(verifier.config).draw(1, "key")[0].id
        pear, plum = call("price", item="pear"), call("price", item="plum")
        assert verifier.score([(identity, [(pear, "so"), (pear, plum, "so"), ("so",)])]) == [[-3.5, 7.0, 1.75]]
        assert "no reward (None or NaN) (1 of 3 answers have no verdict)" in verifier.trouble
        assert "task 'priced' gives scores beyond 0 to 1, such as -3.5" in verifier.trouble


@given(st.text() | st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x)).map(json.dumps))
def test_no_turn_breaks_the_reader_of_calls(turn: str) -> None:
    shop = Tools(Shop)
    shop.begin(1)
    assert isinstance(shop.answer(turn)[0], str)
    assert call_in("[" * 5000 + turn) is None or "{" in turn


def test_deep_calls_are_none() -> None:
    assert call_in('{"name": ' + "[" * 4000) is None


def asked(seed: int) -> tuple[Lookup, Question]:
    task = create_task(TaskSpec(name="lookup:Lookup"))
    assert isinstance(task, EnvironmentTask)
    question = task.question(seed, 0)
    game = task.begin(question.id)
    assert isinstance(game, Lookup)
    return game, question


def test_the_table_tells_who_asks() -> None:
    for seed in range(20):
        game, question = asked(seed)
        city = question.text.rpartition("the number of ")[2].partition("?")[0]
        said, ended = game.answer(f"look up {city}.\n")
        assert not ended
        number = said.partition(" is ")[2].partition(".")[0]
        assert game.score() == 0.3
        assert game.answer(f"It is {number}.")[1]
        assert game.score() == 1


def test_credit_comes_in_steps() -> None:
    game, _ = asked(3)
    assert game.answer("look up Atlantis") == ("There is no such city in the table.", False)
    assert game.score() == 0.1
    assert game.answer("I do not know") == ("", True)
    assert game.score() == 0.1
