"""What is counted in the simulated network (`netsim`), and the row of figures that comes of it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from statistics import fmean
from typing import TYPE_CHECKING

from shoal.rollout import Scored

if TYPE_CHECKING:
    from shoal.apps.lab.netsim import NetConfig, Network
    from shoal.apps.lab.netsim_node import Observer

OFFER = 600
"""Bytes of a question to a peer and its offer, on the wire."""
SLICE = 10.0
"""Seconds of a point of the series."""


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
        few = live < self.config.external
        if self._round(few, round, now):
            self.sums["light_rounds"] += 1
            self.sums["light_few"] += few

    def observed_round(
        self, net: Network, observer: Observer, candidates: Sequence[Scored], chosen: Sequence[Scored]
    ) -> None:
        live = sum(scored.live for scored in candidates)
        if not self._round(live < self.config.external, observer.round, net.now):
            return
        values = self.values
        values["few"].append(live < self.config.external)
        values["pool"].append(len(candidates))
        values["wanted"].append(observer.neighbours.wanted)
        values["region"].append(len(observer.neighbours.known))
        if candidates:
            values["live"].append(live / len(candidates))
            values["pool_makers"].append(len({scored.rollout.node for scored in candidates}))
            questions = len({scored.question.hash for scored in candidates})
            values["same_question"].append(1 - questions / len(candidates))
        if chosen:
            values["makers"].append(len({scored.rollout.node for scored in chosen}))
        for scored in chosen:
            maker = net.named[scored.rollout.node]
            values["seconds"].append(net.now - maker.times[scored.rollout.round - 1])
            values["behind"].append(maker.round - scored.rollout.round)
            values["gone"].append(not maker.alive)

    def row(self, net: Network) -> dict[str, float]:
        """The figures. Bytes and messages are for the mean node and second."""
        config, sums, values = self.config, self.sums, self.values
        span = config.seconds - config.warm_up
        each = span * config.nodes
        observers = net.observers
        seen = sum(o.admission.admitted + o.admission.refused.total() for o in observers)
        refused: Counter[str] = sum((o.admission.refused for o in observers), Counter())
        makers = [len(o.admission.peers.by_key) for o in observers]
        listeners = [node.listeners for node in net.nodes.values() if node.alive and node.round]
        row = {
            "nodes": config.nodes,
            "rollouts in (KB/s)": sums["bytes_in"] / each / 1e3,
            "observers' rollouts in (KB/s)": sums["observed_bytes"] / span / len(observers) / 1e3,
            "offers in (KB/s)": sums["offer_bytes"] / each / 1e3,
            "out to a relay (KB/s)": sums["bytes_out"] / each / 1e3,
            "out as copies (KB/s)": sums["bytes_copies"] / each / 1e3,
            "messages in (1/s)": sums["messages_in"] / each,
            "neighbours wanted": mean(values["wanted"]),
            "peers known": mean(values["region"]),
            "staleness p50 (s)": quantile(values["seconds"], 0.5),
            "staleness p90 (s)": quantile(values["seconds"], 0.9),
            "staleness p99 (s)": quantile(values["seconds"], 0.99),
            "rounds behind, mean": mean(values["behind"]),
            "rounds behind p90": quantile(values["behind"], 0.9),
            "rounds behind p99": quantile(values["behind"], 0.99),
            "used of makers gone (%)": 100 * mean(values["gone"]),
            "pool": mean(values["pool"]),
            "live of pool (%)": 100 * mean(values["live"]),
            "makers in pool": mean(values["pool_makers"]),
            "same question in pool (%)": 100 * mean(values["same_question"]),
            "makers in update": mean(values["makers"]),
            "rounds with fewer than J (%)": 100 * mean(values["few"]),
            "the same, light nodes (%)": 100 * sums["light_few"] / max(1.0, sums["light_rounds"]),
            "makers met by an observer": mean(makers),
            "nobody listens to (%)": 100 * mean([count == 0 for count in listeners]),
            "listeners, most": max(listeners, default=0),
            "refused (%)": 100 * refused.total() / max(1, seen),
            "lost (%)": 100 * self.counts["lost"] / max(1, self.counts["sent"]),
        }
        return row | {f"refused: {reason} (%)": 100 * n / max(1, seen) for reason, n in sorted(refused.items())}


def mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")
