"""What the displays show: figures as texts, what they mean, and how far the run and each of its nodes is."""

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import fmean
from typing import Any, Final, TypeGuard

from rich.text import Text

from shoal.config.settings import ENDLESS

Row = Mapping[str, Any]
"""The metrics of one node and round."""


def cells(row: Row, held_out: Sequence[float], arrow: str) -> dict[str, str]:
    """The figures of a row by their columns. `held_out`: the first and, if there are several, the last."""

    def count(key: str) -> str:
        value = row.get(key)
        return f"{value:.{0 if value >= 99.95 else 1}f}".removesuffix(".0") if is_number(value) else ""

    reward = row.get("reward/local")
    tokens = sum(row.get(f"tokens/{what}") or 0 for what in ("generated", "trained"))
    seconds = sum(row.get(f"seconds/{what}") or 0 for what in ("generate", "score", "learn"))
    return {
        "reward": f"{reward:.2f}" if is_number(reward) else "",
        "held-out": arrow.join(f"{100 * value:.1f}" for value in held_out) + ("%" if held_out else ""),
        "live": count("rollouts/live_local"),
        "given": count("rollouts/shared"),
        "taken": "/".join(filter(None, (count("rollouts/sampled"), count("rollouts/wanted")))),
        "pool": count("rollouts/pool"),
        "tok/s": short(tokens / seconds) if seconds and row.get("tokens/generated") is not None else "",
    }


def spark(values: Sequence[float], highest: float) -> str:
    """`values` as bars, from the lowest at 0 to the full height at `highest`."""
    bars = "▁▂▃▄▅▆▇█"
    scale = (len(bars) - 1) / highest if highest > 0 else 0.0
    return "".join(bars[round(max(0.0, value) * scale)] for value in values)


def short(number: float) -> str:
    """A positive number in at most four characters and a unit: 870, 8.7k, 87k, 8.7M."""
    for unit in ("", "k", "M"):
        if number < 999.5:
            return f"{number:.1f}{unit}" if unit and number < 9.95 else f"{number:.0f}{unit}"
        number /= 1000
    return f"{number:.0f}G"


def clock(seconds: float) -> str:
    """Seconds as 0:07, 12:34 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def is_number(value: Any) -> TypeGuard[float]:
    return isinstance(value, int | float) and math.isfinite(value)


MEANINGS = {
    "reward": "mean of the node's own answers",
    "held-out": "right answers, first→now",
    "live": "own rollouts whose rewards differ",
    "given": "rollouts sent",
    "taken": "others' rollouts used, of J wanted",
    "pool": "rollouts of others, unused",
}
"""Of each column that needs it. Two fit side by side into 80 columns."""
GAP = 2


def legend(columns: Sequence[str], width: int, ascii_only: bool = False) -> list[Text]:
    """A line for some of `columns` each, all that fit side by side."""
    entries = [(name, MEANINGS[name].replace("→", "->" if ascii_only else "→")) for name in columns if name in MEANINGS]
    for side_by_side in range(len(entries), 0, -1):
        groups = [entries[at::side_by_side] for at in range(side_by_side)]
        names = [max(len(name) for name, _ in group) for group in groups]
        wide = [GAP + max(len(text) for _, text in group) for group in groups]
        if sum(names) + sum(wide) + GAP * (side_by_side - 1) <= width or side_by_side == 1:
            break
    lines = []
    for start in range(0, len(entries), side_by_side):
        line = Text(no_wrap=True, overflow="ellipsis")
        for at, (name, text) in enumerate(entries[start : start + side_by_side]):
            line.append(" " * GAP * bool(at) + name.ljust(names[at] + GAP))
            line.append(text.ljust(wide[at] - GAP), "dim")
        line.rstrip()
        lines.append(line)
    return lines


def in_words(columns: Sequence[str]) -> str:
    """The legend as one line of a file or a pipe."""
    return "; ".join(f"{name}: {MEANINGS[name].replace('→', '->')}" for name in columns if name in MEANINGS)


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
