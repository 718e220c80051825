"""How nodes stand, by their metrics: the leaderboard, what was refused, what their machines do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from shoal.apps.watch.series import Metrics, Node
from shoal.apps.watch.source import NAME, Data
from shoal.runs.swarm_status import STALE

PEERS = 200
"""Peers of a joined node, and reasons, that are shown."""
PHASES = ("generate", "score", "learn")


def node_line(name: str, node: Node) -> Data:
    """One node: None for what its metrics do not say. Means are over its last 20 rounds."""
    seconds = {phase: node.recent(f"seconds/{phase}") for phase in PHASES}
    spent = sum(value for value in seconds.values() if value is not None)
    generated, trained = node.recent("tokens/generated"), node.recent("tokens/trained")
    tokens = (generated or 0.0) + (trained or 0.0)
    return {
        "name": name,
        "round": int(max(node.rounds, default=0)),
        "time": node.last("time"),
        "held_out": node.last("eval/pass@1"),
        "held_out_first": node.first("eval/pass@1"),
        "reward": node.recent("reward/local"),
        "shared": node.total("rollouts/shared"),
        "taken": node.total("rollouts/sampled"),
        "outside": node.recent("gradient/external"),
        "refused": node.last("rollouts/refused"),
        "gated": node.recent("external/gated"),
        "missing": node.total("completions/missing"),
        "skipped": node.last("learner/skipped_steps"),
        "pool": node.last("rollouts/pool"),
        "length": node.recent("completions/mean_length"),
        "truncated": node.recent("completions/truncated"),
        "seconds": seconds,
        "tokens": node.total("tokens/generated"),
        "tokens_per_second": tokens / spent if spent and generated is not None else None,
    }


def standing(metrics: Metrics) -> Data:
    """All nodes, the best first by held-out pass@1 and then by local reward."""
    nodes: list[dict[str, Any]] = [node_line(name, node) for name, node in list(metrics.nodes.items())]
    nodes.sort(key=lambda line: (-_or(line["held_out"]), -_or(line["reward"]), line["name"]))
    keys = sorted(key for key in set(metrics.keys) if key != "time")
    held_out = "eval/pass@1/"
    return {
        "rounds": metrics.last_round(),
        "nodes": nodes,
        "metrics": keys,
        "held_out_tasks": [key.removeprefix(held_out) for key in keys if key.startswith(held_out)],
    }


def pulled(metrics: Metrics) -> list[Data]:
    """Of whose rollouts each node's gradient was: means over all its rounds that had one, the largest first."""
    counts = {name: len(node.known("gradient/external")[0]) for name, node in list(metrics.nodes.items())}
    pairs: list[dict[str, Any]] = [
        {"node": node, "maker": maker[:NAME], "share": total / counts[node]}
        for (node, maker), total in list(metrics.pulled.items())
        if node != maker and counts.get(node)
    ]
    return sorted(pairs, key=lambda pair: -pair["share"])[:1000]


def swarm(status: Mapping[str, Any], now: float) -> Data:
    """The state of a joined node's swarm, from the status file in its folder. Nothing in that file is trusted."""
    admission = _table(status.get("admission"))
    peers = admission.get("peers")
    rows = [_peer(_table(peer), now) for peer in (peers if isinstance(peers, list) else [])[:PEERS]]
    age = now - _number(status.get("time"))
    pool = _table(status.get("pool"))
    neighbours = status.get("neighbours")
    return {
        "name": _text(status.get("name")),
        "id": _text(status.get("id")),
        "swarm": _text(status.get("swarm")),
        "private": bool(status.get("private")),
        "age": age,
        "running": age < STALE,
        "note": _text(status.get("note")),
        "links": _number(status.get("links")),
        "peers_there": _number(status.get("peers")),
        "listens_to": len(neighbours) if isinstance(neighbours, list) else 0,
        "sent": _flow(_table(status.get("sent"))),
        "received": _flow(_table(status.get("received"))),
        "pool": {key: _number(pool.get(key)) for key in ("rollouts", "live", "wanted")},
        "admitted": _number(admission.get("admitted")),
        "refused": _counts(admission.get("refused")),
        "dropped": _counts(status.get("dropped")),
        "faults": _number(status.get("faults")),
        "peers": rows,
    }


def _peer(peer: Mapping[str, Any], now: float) -> Data:
    return {
        "name": _text(peer.get("name")),
        "id": _text(peer.get("id")),
        "admitted": _number(peer.get("admitted")),
        "weight": _number(peer.get("weight")),
        "muted": _number(peer.get("muted")),
        "ago": now - _number(peer.get("last")),
        "refused": _counts(peer.get("refused")),
    }


def _flow(meter: Mapping[str, Any]) -> Data:
    keys = ("messages", "bytes", "messages_per_second", "bytes_per_second", "overflow")
    return {key: _number(meter.get(key)) for key in keys}


def _counts(given: Any) -> dict[str, float]:
    counts = {_text(name): _number(count) for name, count in _table(given).items()}
    return dict(sorted(counts.items(), key=lambda one: -one[1])[:PEERS])


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value[:NAME] if isinstance(value, str) else ""


def _number(value: Any) -> float:
    return value if isinstance(value, int | float) and abs(value) < 2**53 else 0


def _or(value: float | None) -> float:
    return -1.0 if value is None else value
