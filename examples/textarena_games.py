"""Games for one player of textarena (https://github.com/LeonGuertler/TextArena) as environments, by their names there.

    shoal run --config my.toml --allow-code       # in this folder, with these lines in my.toml

    [[tasks.sources]]
    name = "textarena_games:TextArena"
    parameters = { game = "Crosswords-v0", max_turns = 12 }

`pip install textarena`. Crosswords-v0 and Mastermind-v0 have all that they need. Other games of words (Wordle-v0,
Hangman-v0) read word lists of NLTK, which have to be on the machine, the same on all nodes: `python -m nltk.downloader
words averaged_perceptron_tagger_eng`.
"""

import importlib
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Final

RULES: Final = 2
"""Of this file: another one plays otherwise."""


class TextArena:
    """One game. Its reward is textarena's, in [0, 1]; what it gives for a part counts after the last turn, too."""

    def __init__(self, game: str = "Wordle-v0", max_turns: int = 8) -> None:
        """Raises `ValueError` without textarena, without such a game, or without the words that it needs."""
        try:
            self.version = f"{version('textarena')}+{RULES}"
            library: Any = importlib.import_module("textarena")
        except (PackageNotFoundError, ImportError):
            raise ValueError("it needs textarena: pip install textarena") from None
        self.name = f"textarena:{game}"
        self.max_turns = max_turns
        try:
            try:  # a game that counts turns ends by itself in the last one: it counts from 0
                self._game = library.make(f"{game}-raw", max_turns=max_turns - 1)
            except TypeError:  # it has a count of its own
                self._game = library.make(f"{game}-raw")
            self._game.reset(num_players=1, seed=0)
        except LookupError:
            raise ValueError(
                f"{game} needs word lists: python -m nltk.downloader words averaged_perceptron_tagger_eng"
            ) from None
        except Exception as error:  # games raise what they like for a name, a player or a key that they lack
            raise ValueError(f"textarena does not play {game!r} here: {error}") from error

    def begin(self, seed: int) -> str:
        self._game.reset(num_players=1, seed=seed % 2**32)
        return self._heard()

    def answer(self, turn: str) -> tuple[str, bool]:
        ended, _ = self._game.step(turn)
        return self._heard(), bool(ended)

    def score(self) -> float:
        rewards, _ = self._game.close()
        return min(1.0, max(0.0, float((rewards or {}).get(0, 0.0))))

    def _heard(self) -> str:
        """What the game has said since the last turn, without the player's own words."""
        _, said = self._game.get_observation()
        return "\n".join(message for sender, message, *_ in said if sender != 0)
