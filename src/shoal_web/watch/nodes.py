"""What the page says of nodes: their figures from the metrics, and the state of a joined node's swarm."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
import numpy as np

from shoal.config.display_name import harmless
from shoal.runs.standing import RECENT, RIGHT, measured, over_nodes, recent
from shoal.runs.swarm_status import STALE, Status
from shoal_web.watch.metrics import Metrics, Node
from shoal_web.watch.source import Data, Source

SHOWN: Final = 200  # peers of a joined node, and reasons of refusals, that are shown
OF: Final[dict[str, Callable[[Any], Any]]] = {
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
    "recent": recent,
    "total": np.sum,
}
FIGURES: Final = {
    "held_out": ("last", "eval/pass@1"),
    "held_out_first": ("first", "eval/pass@1"),
    "blind": ("last", "eval/blind"),
    "questions": ("last", "eval/questions"),
    "reward": ("recent", "reward/local"),
    "taken": ("total", "rollouts/sampled"),
    "refused": ("last", "rollouts/refused"),
    "shortened": ("recent", "peers/shortened"),
    "skipped": ("last", "learner/skipped_steps"),
    "length": ("recent", "completions/mean_length"),
    "truncated": ("recent", "completions/truncated"),
    "learns": ("last", "rollouts/wanted"),
}
"""What the page shows of a node, and how it is made of a metric."""


def node_line(name: str, node: Node) -> Data:
    """One node: None for what its metrics do not have."""

    def figure(of: str, key: str) -> float | None:
        _, values = node.known(key)
        return float(OF[of](values)) if len(values) else None

    seconds = {phase: figure("recent", f"seconds/{phase}") for phase in ("generate", "score", "learn")}
    spent = sum(filter(None, seconds.values()))
    generated, trained = figure("recent", "tokens/generated"), figure("recent", "tokens/trained")
    return {
        "name": name,
        "round": node.round,
        **{field: figure(of, key) for field, (of, key) in FIGURES.items()},
        "seconds": seconds,
        "tokens_per_second": (generated + (trained or 0.0)) / spent if spent and generated is not None else None,
    }


def seconds_left(metrics: Metrics, rounds: int | None) -> float | None:
    """How long the rest of `rounds` takes at the pace of the last ones; None where that is not known."""
    pace = round_seconds(metrics)
    return None if rounds is None or pace is None else pace * max(0, rounds - metrics.last_round())


def round_seconds(metrics: Metrics) -> float | None:
    """Seconds of a usual round of the node that is ahead, by the last ones: a break between two does not count."""
    ahead = max(metrics.nodes.values(), key=lambda node: node.round, default=Node())
    at, times = (values[-RECENT:] for values in ahead.known("time"))
    if len(at) < 2:
        return None
    return float(max(0.0, np.median(np.diff(times) / np.maximum(1.0, np.diff(at)))))


def live_seconds(metrics: Metrics, rounds: int | None) -> float:
    """For how long a run counts as live after its last round: about three rounds, while there are more to come."""
    ended = rounds is not None and metrics.last_round() >= rounds
    return Source.live_for if ended else max(Source.live_for, 3 * (round_seconds(metrics) or 0.0))


def node_lines(metrics: Metrics) -> list[Data]:
    """All nodes, the best first by held-out pass@1 and then by local reward."""

    def rank(line: Data) -> tuple[float, float, str]:
        held_out, reward = (1.0 if line[key] is None else -line[key] for key in ("held_out", "reward"))
        return held_out, reward, line["name"]

    return sorted((node_line(name, node) for name, node in metrics.nodes.items()), key=rank)


def standing(metrics: Metrics, lines: list[Data]) -> Data:
    """How all nodes stand together, as the terminal has it."""
    shares = [node.known(RIGHT)[1].tolist() for node in metrics.nodes.values()]
    means = {key: over_nodes(line[key] for line in lines) for key in ("reward", "blind")}
    questions = max((line["questions"] or 0 for line in lines), default=0) or None
    ends = measured(shares, questions or 0)
    intervals = [[end.low, end.high] for end in ends] if questions else []
    return means | {"questions": questions, "right": [end.value for end in ends], "intervals": intervals}


def swarm_state(data: bytes, now: float) -> Data:
    """The swarm of a joined node, by its status file. Raises `ValueError` for what is none."""
    found = msgspec.json.decode(data, type=Status)
    admission = found.admission
    admission.peers = admission.peers[:SHOWN]
    admission.refused = _most(admission.refused)
    found.display_name = harmless(found.display_name)
    for peer in admission.peers:
        peer.refused, peer.display_name = _most(peer.refused), harmless(peer.display_name)
    age = now - found.time
    state: Data = msgspec.to_builtins(found)
    state |= {"age": age, "running": not found.ended and age < STALE, "neighbours": len(found.neighbours)}
    state["dropped"] = _most(found.dropped)
    return state


def _most(counts: dict[str, int]) -> dict[str, int]:
    return dict(sorted(counts.items(), key=lambda one: -one[1])[:SHOWN])
