"""The settings of a run as they stand in its folder, for comparing two runs."""

from __future__ import annotations

import json
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

from shoal.config.old_names import new_settings
from shoal.runs.folder import CONFIG
from shoal.untrusted import parse_toml
from shoal_web.watch.files import opened
from shoal_web.watch.source import NAME, SHOWN, Data

BYTES: Final = 1 << 18
"""Of the file that are read."""
MOST: Final = 500
"""Settings that are shown."""


def read_settings(folder: Path) -> dict[str, Any]:
    """The settings in `config.toml`, whatever they are; empty if there are none to read."""
    try:
        with opened(folder / CONFIG) as file:
            return _parsed(file.read(BYTES))
    except OSError:
        return {}


@lru_cache(16)
def _parsed(data: bytes) -> dict[str, Any]:
    """A page asks again and again, and a file within bounds may take a second."""
    try:
        return new_settings(parse_toml(data))
    except ValueError:
        return {}


def listed(settings: dict[str, Any]) -> list[Data]:
    """Each setting by its dotted name, in the file's order, with its value as text."""
    found: list[Data] = []

    def add(name: str, value: Any) -> None:
        if isinstance(value, dict) and value:
            for key, each in value.items():
                add(f"{name}.{key}" if name else key, each)
        elif len(found) < MOST:
            text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
            found.append({"name": name[:NAME], "value": text[:SHOWN]})

    add("", settings)
    return found


def attack_of(settings: dict[str, Any]) -> Data | None:
    """What the hostile nodes of an experiment do, and how many there are."""
    experiment = settings.get("experiment")
    nodes = experiment.get("adversaries") if isinstance(experiment, dict) else None
    if not isinstance(experiment, dict) or not isinstance(nodes, int) or nodes <= 0:
        return None
    return {"kind": str(experiment.get("attack", "planted"))[:40], "nodes": nodes}
