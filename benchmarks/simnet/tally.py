"""What is counted while the simulated network runs."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from shoal.rollout import Scored
from simnet.config import NetConfig

OFFER = 600
"""Bytes of a question to a peer and its offer, on the wire."""
SLICE = 10.0
"""Seconds of a point of the series."""


class Use(NamedTuple):
    """A rollout that an observer learned from."""

    seconds: float
    """Since it was made."""
    behind: int
    """Rounds that its maker has made since."""
    gone: bool
    """Whether its maker has left."""


class Tally:
    """Counts of a whole run, which must add up, and measures of what comes after the warm-up."""

    def __init__(self, config: NetConfig) -> None:
        self.config = config
        self.counts: Counter[str] = Counter()
        """Of the whole run. sent = received + lost + left + overrun + what is still on its way."""
        self.sums: defaultdict[str, float] = defaultdict(float)
        """Since the warm-up."""
        self.values: defaultdict[str, list[float]] = defaultdict(list)
        """Since the warm-up, of observers: one for each rollout used, or for each round."""
        self.series: defaultdict[int, list[int]] = defaultdict(lambda: [0, 0])
        """Rounds in each slice of the run, and those among them with fewer than J live rollouts."""
        self.warm = False

    def count(self, what: str, number: int = 1) -> None:
        self.counts[what] += number

    def add(self, what: str, value: float) -> None:
        if self.warm:
            self.sums[what] += value

    def rollout(self, size: float) -> None:
        """A message was received by somebody."""
        self.counts["received"] += 1
        self.add("bytes_in", size)
        self.add("messages_in", 1)

    def observed(self, size: float) -> None:
        """It was an observer."""
        self.counts["observed"] += 1
        self.add("observed_bytes", size)

    def offers(self, number: int) -> None:
        self.add("offer_bytes", number * OFFER)

    def published(self, size: int, listeners: int) -> None:
        self.counts["sent"] += listeners * self.config.local
        self.counts["made"] += self.config.local
        self.add("bytes_copies", size * listeners)
        self.add("bytes_out", size if listeners else 0)

    def _round(self, few: bool, round: int, now: float) -> bool:
        """Notes a round; whether it is to be measured. The first two rounds of a node are its start."""
        slice = self.series[int(now // SLICE)]
        slice[0] += 1
        slice[1] += few
        return self.warm and round > 2

    def light_round(self, live: int, round: int, now: float) -> None:
        few = live < self.config.peers
        if self._round(few, round, now):
            self.sums["light_rounds"] += 1
            self.sums["light_few"] += few

    def observed_round(
        self,
        round: int,
        now: float,
        candidates: Sequence[Scored],
        chosen: Sequence[Scored],
        uses: Sequence[Use],
        **neighbours: float,
    ) -> None:
        """The round of an observer. `uses`: what it learned from; `neighbours`: figures of its choice of them."""
        live = sum(scored.live for scored in candidates)
        if not self._round(live < self.config.peers, round, now):
            return
        values = self.values
        values["few"].append(live < self.config.peers)
        values["pool"].append(len(candidates))
        for name, value in neighbours.items():
            values[name].append(value)
        if candidates:
            values["live"].append(live / len(candidates))
            values["pool_makers"].append(len({scored.rollout.node for scored in candidates}))
            questions = len({scored.question.hash for scored in candidates})
            values["same_question"].append(1 - questions / len(candidates))
        if chosen:
            values["makers"].append(len({scored.rollout.node for scored in chosen}))
        for use in uses:
            for name, value in use._asdict().items():
                values[name].append(value)
