"""What a run measured, to compare with another run's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from shoal.runs.folder import read_metrics


def figures(folder: Path) -> list[dict[str, Any]]:
    """The rows of a run's metrics without what clocks say. Two runs of one kind agree on all of them; a slow machine
    measures more durations than a fast one, such as that of a checkpoint which is due by time."""
    rows = read_metrics(folder)
    return [{k: v for k, v in row.items() if k != "time" and not k.startswith("seconds/")} for row in rows]
