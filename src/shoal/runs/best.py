"""Which of a run's nodes and models is the best, by the last held-out pass@1; and which model a node began from.

best_model(folder, run_metrics(folder))      # runs/one/checkpoints/round-000060/node-2
began_from(config, "node-2")                 # "guppy"
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.config.settings import Config
from shoal.runs.folder import models


def best_node(rows: Sequence[Mapping[str, Any]]) -> str:
    """The node with the highest last held-out pass@1; empty without evaluations."""
    held_out = _held_out(rows)
    return max(held_out, key=held_out.__getitem__, default="")


def best_model(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path | None:
    """The model in the last checkpoint whose node has the highest last held-out pass@1; None without checkpoints."""
    held_out = _held_out(rows)
    return max(models(folder).values(), key=lambda path: held_out.get(path.name, -1.0), default=None)


def _held_out(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The last held-out pass@1 of each node."""
    return {row["node"]: row["eval/pass@1"] for row in rows if row.get("eval/pass@1") is not None}


def began_from(config: Config, node: str) -> str:
    """The model from which a node began."""
    models = config.policy.model
    number = re.fullmatch(r"node-(\d{1,6})", node)  # a node that joined a swarm has another name, and one model
    return models[(int(number[1]) - 1) % len(models) if number else 0]
