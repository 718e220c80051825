"""What a tracker gets of a round: its metrics under stable names, and a few rollouts as plain text.

    tracked_metrics([{"node": "ada", "round": 3, "eval/pass@1": 0.25}])        # {"eval/pass_at_1": 0.25}
    tracked_rollouts([("ada", result)])                                        # at most `MOST` rows

A process of several nodes reports the mean over its nodes under the name of the metric, so that runs of any size
compare, and each node's own figure under `NODE/NAME`.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from statistics import fmean
from typing import Any, Final

from shoal.config.settings import Config
from shoal.node import RoundResult
from shoal.rollout import Scored
from shoal.untrusted import json_safe, printable

MOST: Final = 8
"""Rollouts of a round that are shown, of all nodes together."""
LONGEST, NAME = 4000, 100
"""Characters of a text and of a name that are shown."""
VISIBLE: Final = "\n\t"
"""Characters that are kept although they are not printable."""

Settings = dict[str, bool | int | float | str]


@dataclass(frozen=True)
class TrackedRollout:
    """One completion. Its texts may be a stranger's: plain characters, of bounded length."""

    node: str
    """Who learned from it."""
    maker: str
    """Who made it: the node itself or another."""
    task: str
    question: str
    completion: str
    reward: float


@dataclass(frozen=True)
class Report:
    """A round, as trackers get it."""

    round: int
    metrics: dict[str, float]
    rollouts: Sequence[TrackedRollout] = ()
    late: bool = False
    """Whether this belongs to a round that was reported before."""


def tracked_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers in the metrics of a round, which has a row for each node."""
    found: dict[str, list[float]] = {}
    own: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name in ("round", "time") or not isinstance(value, int | float) or not math.isfinite(value):
                continue
            name = tracked_name(name)
            found.setdefault(name, []).append(value)
            own[f"{tracked_name(row['node'])}/{name}"] = value
    means = {name: fmean(values) for name, values in found.items()}
    return means | own if len(rows) > 1 else means


def tracked_name(name: str) -> str:
    """A name that every tracker takes: letters, digits and `_-./`; `@` becomes `_at_`, all else `_`."""
    return re.sub(r"[^A-Za-z0-9_\-./]", "_", name.replace("@", "_at_"))


def tracked_rollouts(results: Sequence[tuple[str, RoundResult]]) -> list[TrackedRollout]:
    """The first completions of a few rollouts of a round: each node's own and others' by turns. `results`: with the
    name of the node."""
    rows = [_rows(name, group) for name, result in results for group in (result.local, result.from_peers)]
    return list(islice((row for turn in zip_longest(*rows) for row in turn if row), MOST))


def tracked_config(config: Config) -> Settings:
    """The settings by their dotted names: lists as JSON, and of the network the swarm's name alone."""
    sections = config.model_dump(mode="json")
    sections["network"] = {"name": config.network.name}
    sections["policy"]["model"] = [re.sub(r"//[^/@]*@", "//", name) for name in config.policy.model]  # no password
    sections["evaluation"].pop("judges")
    found: dict[str, Any] = {}
    for name, value in sections.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {name: json.dumps(json_safe(v)) if isinstance(v, list | dict) else v for name, v in found.items()}


def _rows(node: str, group: Sequence[Scored]) -> Iterator[TrackedRollout]:
    for scored in group:
        for completion, reward in islice(zip(scored.rollout.completions, scored.rewards, strict=False), 1):
            yield TrackedRollout(
                printable(node, NAME),
                printable(scored.rollout.node, NAME),
                printable(scored.question.id.task, NAME),
                _visible(scored.question.shown),
                _visible(completion.text),
                reward,
            )


def _visible(text: str) -> str:
    """`text` of at most `LONGEST` characters, with ? for what is invisible or would steer a terminal."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "".join(char if char.isprintable() or char in VISIBLE else "?" for char in cut)
