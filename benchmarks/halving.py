"""The game of `turns.py`, for shoal and in TRL's shape: guess a number, and hear whether it is higher or lower.

It says so after each of four turns, also of the right number, so that every conversation has four. Both shapes hold one
game, and score it alike.
"""

from __future__ import annotations

from shoal.tasks.environments.games import Guess

TURNS = 4
NUMBERS = 64
RULES = """A number is hidden in a range. Each turn is a guess, which is one number in a line. The answer says whether
the hidden number is higher or lower. The nearer the last of four guesses, the better.
"""


class Halving(Guess):
    """In shoal's shape. Scores how near the last number is."""

    name = "halving"

    def __init__(self, rules: bool = False) -> None:
        """`rules`: whether it says the rules first."""
        super().__init__(NUMBERS)
        self._rules = RULES if rules else ""
        self._last = 0

    def begin(self, seed: int) -> str:
        return self._rules + super().begin(seed)

    def answer(self, turn: str) -> tuple[str, bool]:
        observation, found = super().answer(turn)
        if observation != "a number":
            self._last = int(turn)
        return "lower" if found else observation, False

    def score(self) -> float:
        return 1 - min(1.0, abs(self._last - self._secret) / NUMBERS)


class HalvingTool:
    """In the shape of TRL's `environment_factory`: a guess is a call of a tool."""

    def __init__(self) -> None:
        self._game = Halving()

    def reset(self, number: int, rules: bool, **_row: object) -> str:
        self._game = Halving(rules)
        return self._game.begin(number)

    def guess(self, number: str) -> str:
        """Guess the number.

        Args:
            number: The guess.
        """
        return self._game.answer(number)[0]

    def _score(self) -> float:
        return self._game.score()
