"""How long the rest of a run takes, at the pace of its last rounds.

pace = Pace(rounds=100, every=10)
pace.took(round=1, seconds=14.0, evaluating=20.0)
pace.left                                            # seconds, None if unknown
"""

from __future__ import annotations

from collections import deque
from statistics import fmean
from typing import Final

RECENT: Final = 8
"""Rounds whose mean counts."""


class Pace:
    """The seconds of rounds, evaluations and checkpoints so far."""

    def __init__(self, rounds: int, every: int) -> None:
        """`every`: rounds between evaluations; 0: only at the start and the end."""
        self.rounds, self.every = rounds, every
        self._round = 0
        self._plain: deque[float] = deque(maxlen=RECENT)
        self._evaluating = 0.0
        self._saving: list[float] = []

    def took(self, round: int, seconds: float, evaluating: float = 0.0, saving: float = 0.0) -> None:
        """`round` took so many seconds in all, of which the evaluation and the checkpoint took some."""
        self._round = round
        self._evaluating = evaluating or self._evaluating
        self._saving.append(saving)
        if round:
            self._plain.append(max(0.0, seconds - evaluating - saving))

    @property
    def left(self) -> float | None:
        """Seconds to the end; None before the first round."""
        if not self._plain:
            return None
        rounds = range(self._round + 1, self.rounds + 1)
        asked = sum(round == self.rounds or bool(self.every and round % self.every == 0) for round in rounds)
        return len(rounds) * (fmean(self._plain) + fmean(self._saving)) + asked * self._evaluating
