"""Games of textarena: the example that plays them."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from shoal.config.tasks import TaskSpec
from shoal.errors import UserError
from shoal.tasks import create_task
from shoal.tasks.environments.task import EnvironmentTask

sys.path.append(str(Path(__file__).parents[2] / "examples"))
import textarena_games
from textarena_games import TextArena


class Standin:
    """Speaks as textarena's games do: messages of the game (-1) and of the player (0), rewards at the end."""

    def reset(self, num_players: int, seed: int) -> None:
        assert num_players == 1
        self.said: list[tuple[int, str, str]] = [(-1, f"find {seed % 7}", "PROMPT")]
        self.secret, self.rewards = str(seed % 7), None

    def step(self, action: str) -> tuple[bool, dict[str, Any]]:
        self.said += [(0, action, "PLAYER_ACTION"), (-1, "hm", "GAME_MESSAGE")]
        if action == self.secret:
            self.rewards = {0: 1}  # type: ignore[assignment]
        return action == self.secret, {}

    def get_observation(self) -> tuple[int, list[tuple[int, str, str]]]:
        said, self.said = self.said, []
        return 0, said

    def close(self) -> tuple[dict[int, float] | None, dict[str, Any]]:
        return self.rewards, {}


@pytest.fixture
def standin(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("textarena")

    def make(name: str, **settings: int) -> Standin:
        if settings:
            raise TypeError("make() got an unexpected keyword argument 'max_turns'")
        if name == "Wordle-v0-raw":
            raise LookupError("Resource 'words' not found")
        if name != "Find-v0-raw":
            raise ValueError(f"no game {name}")
        return Standin()

    module.make = make  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "textarena", module)
    monkeypatch.setattr(textarena_games, "version", lambda name: "0.7.4")
    return module


def test_a_game(standin: ModuleType) -> None:
    game = TextArena("Find-v0")
    assert game.begin(9) == "find 2"
    assert game.answer("1") == ("hm", False)
    assert game.score() == 0
    assert game.answer("2") == ("hm", True)
    assert game.score() == 1


def test_a_game_is_a_task_by_its_name(standin: ModuleType) -> None:
    task = create_task(TaskSpec(name="textarena_games:TextArena", parameters={"game": "Find-v0", "max_turns": 4}))
    assert isinstance(task, EnvironmentTask)
    assert (task.name, task.version, task.question(1, 0).turns) == ("textarena:Find-v0", "0.7.4+2", 4)


@pytest.mark.parametrize(("game", "said"), [("Wordle-v0", "nltk.downloader words"), ("Nothing-v0", "does not play")])
def test_games_that_cannot_be_played_say_why(standin: ModuleType, game: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        create_task(TaskSpec(name="textarena_games:TextArena", parameters={"game": game}))


def test_a_game_of_textarena_itself() -> None:
    pytest.importorskip("textarena")
    game = TextArena("Mastermind-v0")
    assert game.begin(7) == TextArena("Mastermind-v0").begin(7)
    said, ended = game.answer("[1 2 3 4]")
    assert "1 2 3 4" in said
    assert not ended
    assert 0 <= game.score() < 1


def test_a_game_of_words_of_textarena_itself() -> None:
    pytest.importorskip("textarena")
    game = TextArena("Crosswords-v0", max_turns=3)
    board = game.begin(7)
    assert board == TextArena("Crosswords-v0").begin(7)
    assert "1. A stake or share in something, like a business or property. (8 letters)" in board
    said, ended = game.answer("[6 2 i][6 3 n]")
    assert "R06  .   .   I   N   _" in said
    assert not ended
    assert not game.answer("[6 4 t]")[1]
    assert game.answer("[6 5 e]")[1]
    assert game.score() == pytest.approx(4 / 21)
