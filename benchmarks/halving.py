"""The game of `turns.py`, for shoal and in TRL's shape: guess a number, and hear whether it is higher or lower.

It says so after each of four turns, also of the right number, so that every conversation has four. Both shapes hold one
game, and score it alike.
"""

from __future__ import annotations

from shoal.tasks.environments.guess import Guess

TURNS = 4
NUMBERS = 64
RULES = """A game of numbers. There is a number in a range, and a player looks for it. Each turn is a guess: one number
in a line and nothing else. The answer says whether the number is higher or lower than the guess. There are four turns.
The nearer the last guess, the better.
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
