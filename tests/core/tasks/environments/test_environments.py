"""Environments as tasks: what a question is, and how a conversation is held."""

from __future__ import annotations

import pytest
from talking import Echo, Few, Same

from shoal.config.tasks import TasksConfig, TaskSpec
from shoal.errors import UserError
from shoal.tasks import Tasks, create_task
from shoal.tasks.environments.games import Guess
from shoal.tasks.environments.task import EnvironmentFailed, EnvironmentTask, play


def test_a_question_is_what_the_environment_says_first() -> None:
    task = EnvironmentTask(Echo, {"word": "moo"})
    question = task.question(seed=7, index=0)
    assert question == EnvironmentTask(Echo, {"word": "moo"}).question(7, 0)
    assert question.text.startswith("talk ")
    assert question.turns == 3
    assert question.text != task.question(7, 1).text
    assert task.config != EnvironmentTask(Echo, {}).config


def test_parameters_that_are_not_given_count_as_their_defaults() -> None:
    assert EnvironmentTask(Echo, {}).config == EnvironmentTask(Echo, {"word": "word"}).config


def test_a_conversation_ends_where_the_environment_says() -> None:
    question = EnvironmentTask(Echo, {}).question(7, 0)
    conversation = EnvironmentTask(Echo, {}).begin(question.id)
    assert play(conversation, ("good", "end", "good")) == (("word 1", "word 2"), True)
    assert conversation.score() == 1 / 3


@pytest.mark.parametrize(("fault", "reason"), [("megabyte", "observation"), ("number", "environment")])
def test_what_an_environment_must_not_say(fault: str, reason: str) -> None:
    task = EnvironmentTask(Echo, {"fault": fault})
    with pytest.raises(EnvironmentFailed) as failed:
        play(task.begin(task.question(1, 0).id), ("bad",))
    assert failed.value.reason == reason


def test_what_is_held_out_does_not_depend_on_which_other_tasks_a_node_has() -> None:
    """With 90 numbers all games begin alike; those with 16 are still told apart by their words."""
    guess, other = TaskSpec(name="guess"), TaskSpec(name="guess", parameters={"numbers": 90})
    alone, both = Tasks(TasksConfig(sources=[guess])), Tasks(TasksConfig(sources=[guess, other]))
    for question in alone.draw(100, "key"):
        assert not both.is_held_out(both.question(question.id))


def test_conversations_about_other_questions_are_held_out() -> None:
    tasks = Tasks(TasksConfig(sources=[TaskSpec(name="guess")]))
    held_out = tasks.held_out(30, 0)["guess"]
    assert len({question.id for question in held_out}) == 30
    trained = {question.text for question in tasks.draw(200, "key")}
    assert not trained & {question.text for question in held_out}
    assert all(question.turns == 4 for question in held_out)


def test_where_the_first_words_are_always_the_same_questions_still_differ() -> None:
    tasks = Tasks(TasksConfig(sources=[TaskSpec(name="talking:Same")]))
    held_out = {question.id for question in tasks.held_out(30, 0)["same"]}
    assert len(held_out) == 30
    drawn = tasks.draw(100, "key")
    assert not any(tasks.is_held_out(question) for question in drawn)
    assert Same.name == drawn[0].id.task


@pytest.mark.parametrize("words", [1, 2, 3, 4, 40])
def test_some_conversations_are_held_out_however_few_first_words_there_are(words: int) -> None:
    tasks = Tasks(TasksConfig(sources=[TaskSpec(name="talking:Few", parameters={"words": words})]))
    drawn, held_out = tasks.draw(64, "key"), tasks.held_out(16, 0)[Few.name]
    assert len(held_out) == 16
    assert not any(map(tasks.is_held_out, drawn))
    assert words < 40 or {q.text for q in held_out}.isdisjoint(q.text for q in drawn)


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"name": "talking:Echo", "answer": "tag"}, "whole turns"),
        ({"name": "talking:Echo", "examples": 2}, "whole turns"),
        ({"name": "talking:Echo", "parameters": {"volume": 3}}, "volume"),
        ({"name": "guess", "parameters": {"numbers": 1}}, "numbers must be"),
        ({"name": "talking:conversation"}, "begin"),
    ],
)
def test_mistakes_are_one_line(spec: dict[str, object], said: str) -> None:
    with pytest.raises(UserError, match=said):
        create_task(TaskSpec.model_validate(spec))


def test_most_turns_are_bounded() -> None:
    class Endless(Echo):
        max_turns = 33

    with pytest.raises(ValueError, match="2 to 32"):
        EnvironmentTask(Endless, {})


def games() -> list[tuple[Guess, int, int]]:
    """A game about each place in a range, with the first and the last number."""
    found: dict[int, Guess] = {}
    for seed in range(400):
        words = (game := Guess()).begin(seed).split()
        found.setdefault(game._secret - int(words[1]), game)
    assert len(found) == 16
    return [(game, game._low, game._low + 15) for game in found.values()]


def test_guess_rewards_whoever_listens() -> None:
    """By halving, 15 of 16 numbers are found in four tries."""
    scores = []
    for game, first, last in games():
        low, high = first, last
        for _ in range(game.max_turns):
            middle = (low + high) // 2
            heard, ended = game.answer(f" {middle}\n")
            if ended:
                break
            low, high = (middle + 1, high) if heard == "higher" else (low, middle - 1)
        scores.append(game.score())
    assert sum(scores) == 15


def test_guess_without_listening_finds_a_quarter() -> None:
    scores = []
    for game, _, _ in games():
        play(game, game.blind())
        scores.append(game.score())
    assert sum(scores) == 4


def test_guess_takes_numbers_alone() -> None:
    for said in ("", "forty", "4 5", "-12", "४२", "111", "12.0"):
        game = Guess()
        game.begin(3)
        assert game.answer(said) == ("a number", False)
        assert game.score() == 0


def test_who_holds_no_conversations_says_so_before_it_starts() -> None:
    tasks = Tasks(TasksConfig(suite="games"))
    with pytest.raises(UserError, match="task 'guess' answers back, which a judge cannot do yet"):
        tasks.refuse_environments("a judge")
    Tasks(TasksConfig()).refuse_environments("a judge")
