"""What a run's folder tells of its model: what it learned, from whom, and how it was measured.

    story = story_of(source_of("runs/one"))
    story.evaluations[-1]["eval/pass@1"]                     # 0.5
    story.makers            # [("node-2", 144, 0.48), ...]

A run's folder may come from a stranger: its files are read within limits, and no code that its settings name runs.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import tomli_w

from shoal.config.load import make_config, read_run
from shoal.config.settings import CONFIG_VERSION, Config
from shoal.errors import UserError
from shoal.runs.folder import CONFIG, read_metrics
from shoal.runs.source import Source
from shoal.runs.standing import RIGHT
from shoal.runs.tables import LEARNED, MOST, records

PATH: Final = re.compile(r"^(/|~|\.{1,2}[\\/]|\\\\|[A-Za-z]:[\\/])")
"""A text that is a path on somebody's machine."""
URL: Final = re.compile(r"^\w+:/?/")
PLACES: Final = {"model", "file", "path", "held_out", "folder", "function", "factory", "name"}
"""Settings that may name a place on somebody's machine, however it is written."""
TEXTS: Final = {"system_prompt", "answer"}
"""Settings that are never one: "/no_think" is no path."""


@dataclass(frozen=True)
class Story:
    """How a model came to be."""

    base: str
    """The name of the model from which it began; the last part, if that is a path or an address."""
    base_source: str
    """The same as the run's settings have it."""
    config: Config
    evaluations: Sequence[Mapping[str, Any]]
    """The metrics of the rounds in which it was measured, the first ones before any training."""
    own: int
    """Own rollouts that it learned from."""
    makers: Sequence[tuple[str, int, float]]
    """The others: name, rollouts and share of the gradient (a mean over rounds), the largest share first."""
    joined: bool
    """Whether it was a node of a swarm of many machines."""

    @property
    def settings(self) -> str:
        """What repeats the run, as TOML: without addresses, and with the last parts of paths."""
        private: dict[str, bool | set[str]] = {"network": True, "report_to": True, "evaluation": {"judges"}}
        settings = self.config.model_dump(exclude_defaults=True, exclude=private)
        return tomli_w.dumps({"version": CONFIG_VERSION, **_public(settings)})


def story_of(source: Source) -> Story | None:
    """The story of a run's model; None for any other. Raises `UserError` for damaged files."""
    if source.run is None:
        return None
    file = source.run / CONFIG
    # allowed to name code, none of which runs here
    config = make_config(read_run(file), str(file), allow_code=True).resolved()
    base = config.node_models.get(source.node, config.policy.model[0])
    rows = [row for row in read_metrics(source.run) if row["node"] == source.node and row["round"] <= source.round]
    own, makers = read_makers(source.run, source.node, source.round)
    return Story(
        base=public_name(base),
        base_source=base,
        config=config,
        evaluations=[row for row in rows if row.get(RIGHT) is not None],
        own=own,
        makers=makers,
        joined=not re.fullmatch(r"node-\d{1,6}", source.node),
    )


def public_name(name: str) -> str:
    """The last part of a path; no address; anything else as it is."""
    if URL.match(name):
        return "an address"
    is_path = PATH.match(name) or name.count("/") > 1 or Path(name).exists()
    return re.split(r"[\\/]", name.rstrip("\\/"))[-1] if is_path else name


def _public(value: Any, name: str = "") -> Any:
    """Settings without what says where somebody keeps files, or how a machine is reached. `name`: of the setting."""
    match value:
        case str() if name in PLACES or (name not in TEXTS and (PATH.match(value) or URL.match(value))):
            return public_name(value)
        case Mapping():
            return {key: _public(item, key) for key, item in value.items() if item is not None}
        case list():
            return [_public(item, name) for item in value]
        case _:
            return value


MAKERS, NAME = 100_000, 200
"""Bounds of what is counted: makers, and characters of their names."""


def read_makers(run: Path, node: str, last: int = 2**53) -> tuple[int, list[tuple[str, int, float]]]:
    """How many own rollouts `node` learned from up to the round `last`; and every other maker's name, number of
    rollouts and mean share of the gradient over the rounds that had an update, the largest first. Raises `UserError`
    for files that are no tables."""
    own, rounds, counts, totals = 0, set[int](), Counter[str](), Counter[str]()
    for row in records(run, LEARNED, ["round", "node", "maker", "peer", "gradient_share"]):
        if row["node"] != node or row["maker"] is None or row["round"] is None or row["round"] > last:
            continue
        share = row["gradient_share"]
        known = share is not None and math.isfinite(share)
        if known:
            rounds.add(row["round"])
        if row["peer"]:
            counts[row["maker"][:NAME]] += 1
            totals[row["maker"][:NAME]] += share if known else 0
        else:
            own += 1
        if len(counts) > MAKERS or len(rounds) > MOST:
            raise UserError(f"{run / LEARNED} names more than {MAKERS:,} makers, or {MOST:,} rounds")
    others = [(maker, count, float(totals[maker]) / max(1, len(rounds))) for maker, count in counts.items()]
    return own, sorted(others, key=lambda item: (-item[2], item[0]))
