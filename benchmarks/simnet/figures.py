"""The row of figures that a simulated network gives once it ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from simnet.network import Network


def figures(net: Network) -> dict[str, float]:
    """The figures. Bytes and messages are for the mean node and second."""
    config, tally = net.config, net.tally
    sums, values = tally.sums, tally.values
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
        "lost (%)": 100 * tally.counts["lost"] / max(1, tally.counts["sent"]),
    }
    return row | {f"refused: {reason} (%)": 100 * n / max(1, seen) for reason, n in sorted(refused.items())}


def mean(values: Sequence[float]) -> float:
    return fmean(values) if values else float("nan")


def quantile(values: Sequence[float], share: float) -> float:
    return sorted(values)[int(share * (len(values) - 1))] if values else float("nan")
