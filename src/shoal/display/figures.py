"""What the displays show: figures as texts, what they mean, and how far the run and each of its nodes is."""

import math
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeGuard

from shoal.config.settings import ENDLESS
from shoal.runs.standing import RECENT, REWARD, RIGHT, before_and_now, over_nodes, recent

Row = Mapping[str, Any]
"""The metrics of one node and round."""
MEANINGS = {
    "reward": f"mean of the node's own answers in the last {RECENT} rounds",
    "held-out": "right on questions it never practised, first and now",
    "live": "own rollouts whose rewards differ",
    "used": "peers' rollouts used, of J wanted",
    "contribution": "peers' share of the gradient",
    "pool": "peers' rollouts, unused",
}
"""Of each column that needs it."""


def legend(columns: Iterable[str]) -> str:
    """What these columns mean."""
    return "; ".join(f"{name}: {MEANINGS[name]}" for name in columns if name in MEANINGS)


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
        "used": "/".join(filter(None, (count("rollouts/sampled"), count("rollouts/wanted")))),
        "contribution": f"{share:.0%}" if is_number(share := row.get("gradient/peers")) else "",
        "pool": count("rollouts/pool"),
        "tok/s": short(tokens / seconds) if seconds and row.get("tokens/generated") is not None else "",
    }


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


class Progress:
    """How far a run has come."""

    def __init__(self, total_rounds: int, nodes: Iterable[str], history: Iterable[Row] = ()) -> None:
        self.total = total_rounds
        self.nodes = list(nodes)
        self.round = 0
        self.last: dict[str, Row] = {}
        self.held_out: dict[str, list[float]] = {}
        """Held-out pass@1 of each node: the first and, if there are several, the last."""
        self._rewards: dict[str, deque[float]] = {}
        self._start = time.monotonic()
        self._timed: list[tuple[int, float]] = []
        """The first round of this process and the last one, with the times of their ends."""
        for row in history:
            self.round = row["round"]
            self._take(row)

    def update(self, rows: Sequence[Row], round: int) -> None:
        self.round = round
        self._timed = [*self._timed[:1], (round, time.monotonic())]
        for row in rows:
            self._take(row)

    def _take(self, row: Row) -> None:
        node = row["node"]
        if node not in self.nodes:
            self.nodes.append(node)
        if is_number(reward := row.get(REWARD)):
            self._rewards.setdefault(node, deque(maxlen=RECENT)).append(reward)
        self.last[node] = {**row, REWARD: recent(list(self._rewards.get(node, ())))}
        if is_number(held_out := row.get(RIGHT)):
            self.held_out[node] = [*self.held_out.get(node, [])[:1], held_out]

    def mean_row(self) -> dict[str, float]:
        """The mean of each figure, over the nodes that have it."""
        keys = {key for row in self.last.values() for key in row}
        values = {key: [row[key] for row in self.last.values() if is_number(row.get(key))] for key in keys}
        return {key: mean for key, numbers in values.items() if (mean := over_nodes(numbers)) is not None}

    def mean_held_out(self) -> list[float]:
        return before_and_now(self.held_out.values())

    def count(self) -> str:
        """The round, and the number of rounds if there is an end."""
        return f"round {self.round}" + (f"/{self.total}" if self.total < ENDLESS else "")

    def times(self) -> str:
        """The time since the start and, at the pace so far, the time that is left."""
        now = time.monotonic()
        elapsed = f"{clock(now - self._start)} elapsed"
        if len(self._timed) < 2 or self.round >= self.total or self.total >= ENDLESS:
            return elapsed
        (first, begun), (last, ended) = self._timed
        left = (ended - begun) / max(1, last - first) * (self.total - last) - (now - ended)
        return f"{elapsed}, {clock(max(0.0, left))} left"
