"""What the displays show: the round, the time, and for each node its last metrics and its history."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import Final

from shoal.cli.display.figures import Row, clock, is_number
from shoal.config.settings import ENDLESS

HISTORY = 24
"""Rounds whose rewards are kept."""
SOON = 60.0
"""Seconds to the end, below which nobody needs a forecast."""


class Progress:
    """How far a run has come."""

    def __init__(self, total_rounds: int, nodes: Iterable[str], history: Iterable[Row], every: int = 0) -> None:
        self.total = total_rounds
        self.nodes = list(nodes)
        self.round = 0
        self.last: dict[str, Row] = {}
        self.rewards: dict[str, list[float]] = {}
        self.held_out: dict[str, list[float]] = {}
        """Held-out pass@1 of each node: the first and, if there are several, the last."""
        self._start = time.monotonic()
        self._last: float | None = None
        self._pace = Pace(total_rounds, every)
        self._is_told = False
        for row in history:
            self.round = row["round"]
            self._take(row)

    def update(self, rows: Sequence[Row], round: int) -> None:
        self.round = round
        now, before = time.monotonic(), self._last
        self._last = now
        if before is not None:  # else it is not known when the round began
            evaluating, saving = (_seconds(rows, what) for what in ("evaluate", "checkpoint"))
            self._pace.took(round, now - before, evaluating, saving)
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        node = row["node"]
        if node not in self.nodes:
            self.nodes.append(node)
        self.last[node] = row
        if is_number(reward := row.get("reward/local")):
            self.rewards[node] = [*self.rewards.get(node, []), reward][-HISTORY:]
        if is_number(held_out := row.get("eval/pass@1")):
            self.held_out[node] = [*self.held_out.get(node, [])[:1], held_out]

    def mean_row(self) -> dict[str, float]:
        """The mean of each figure, over the nodes that have it."""
        keys = {key for row in self.last.values() for key in row}
        values = {key: [row[key] for row in self.last.values() if is_number(row.get(key))] for key in keys}
        return {key: fmean(numbers) for key, numbers in values.items() if numbers}

    def mean_rewards(self) -> list[float]:
        """The mean over the nodes, in each of the last rounds."""
        pasts = self.rewards.values()
        longest = max(map(len, pasts), default=0)
        return [fmean(past[-at] for past in pasts if len(past) >= at) for at in range(longest, 0, -1)]

    def mean_held_out(self) -> list[float]:
        known = self.held_out.values()
        ends = (0, -1) if any(len(values) > 1 for values in known) else (0,)
        return [fmean(values[end] for values in known) for end in ends if known]

    def count(self) -> str:
        """The round, and the number of rounds if there is an end."""
        return f"round {self.round}" + (f"/{self.total}" if self.total < ENDLESS else "")

    def times(self) -> str:
        """The time since the start and, at the pace of the last rounds, the time that is left."""
        elapsed = f"{clock(time.monotonic() - self._start)} elapsed"
        left = self._left()
        return elapsed if left is None else f"{elapsed}, {clock(left)} left"

    def forecast(self) -> str:
        """Once, when it is known and long: how long the run takes."""
        left = self._left()
        if left is None or left < SOON or self._is_told:
            return ""
        self._is_told = True
        return f"about {max(1, round(left / 60))} min to the end, at the pace of this round"

    def _left(self) -> float | None:
        """Seconds; None if unknown, at the end, and without an end."""
        if self.round >= self.total or self.total >= ENDLESS or self._last is None or self._pace.left is None:
            return None
        return max(0.0, self._pace.left - (time.monotonic() - self._last))


def _seconds(rows: Sequence[Row], what: str) -> float:
    """What a round's rows say of a part of all its nodes together."""
    values = [row.get(f"seconds/{what}") for row in rows]
    return max((value for value in values if is_number(value)), default=0.0)


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
