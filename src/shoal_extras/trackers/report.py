"""What a tracker gets of a round: its metrics under stable names, and a few rollouts as plain text.

    tracked_metrics([{"node": "ada", "round": 3, "eval/pass@1": 0.25}])        # {"eval/pass_at_1": 0.25}
    tracked_rollouts([("ada", result)])                                        # at most `MOST` rows

A process of several nodes reports the mean over its nodes under the name of the metric, so that runs of any size
compare, and each node's own figure under `NODE/NAME`.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, zip_longest
from pathlib import Path
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


@dataclass(frozen=True)
class Start:
    """The run that is reported."""

    folder: Path
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: Mapping[str, Any]
    """The settings by their dotted names."""


@dataclass(frozen=True)
class Report:
    """A round, as trackers get it."""

    round: int
    metrics: Mapping[str, float]
    rollouts: Sequence[Mapping[str, Any]]
    """Completions with their node, maker, task, prompt and reward. Plain characters, of bounded length."""
    late: bool
    """Whether this belongs to a round that was reported before."""


def tracked_metrics(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """The numbers in the metrics of a round, which has a row for each node."""
    found: dict[str, list[float]] = {}
    own: dict[str, float] = {}
    for row in rows:
        for name, value in row.items():
            if name not in ("round", "time") and isinstance(value, int | float) and math.isfinite(value):
                found.setdefault(tracked_name(name), []).append(value)
                own[tracked_name(f"{row['node']}/{name}")] = value
    means = {name: fmean(values) for name, values in found.items()}
    return means | own if len(rows) > 1 else means


def tracked_name(name: str) -> str:
    """A name that every tracker takes: letters, digits and `_-./`; `@` becomes `_at_`, all else `_`."""
    return re.sub(r"[^A-Za-z0-9_\-./]", "_", name.replace("@", "_at_"))


def tracked_rollouts(results: Sequence[tuple[str, RoundResult]]) -> list[dict[str, Any]]:
    """The first completions of a few rollouts of a round: each node's own and its peers' by turns. `results`: with the
    name of the node. Texts may be a stranger's: they become plain characters, of bounded length."""
    groups = [[(name, one) for one in group] for name, r in results for group in (r.local, r.from_peers)]
    by_turns = (one for turn in zip_longest(*groups) for one in turn if one and one[1].rollout.completions)
    return [_row(node, scored) for node, scored in islice(by_turns, MOST)]


def _row(node: str, scored: Scored) -> dict[str, Any]:
    return {
        "node": printable(node, NAME),
        "maker": printable(scored.rollout.node, NAME),
        "task": printable(scored.question.id.task, NAME),
        "prompt": _visible(scored.question.shown),
        "completion": _visible(scored.rollout.completions[0].text),
        "reward": scored.rewards[0],
    }


def _visible(text: str) -> str:
    """`text` of at most `LONGEST` characters, with ? for what is invisible or would steer a terminal."""
    cut = text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
    return "".join(char if char.isprintable() or char in "\n\t" else "?" for char in cut)


def tracked_config(config: Config) -> dict[str, Any]:
    """The settings by their dotted names: lists as JSON, and of the network the swarm's name alone."""
    sections = config.model_dump(mode="json", exclude={"evaluation": {"judges"}})
    sections["network"] = {"name": config.network.name}
    sections["policy"]["model"] = [re.sub(r"//[^/@]*@", "//", name) for name in config.policy.model]  # no password
    found: dict[str, Any] = {}
    for name, value in sections.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {name: json.dumps(json_safe(v)) if isinstance(v, list | dict) else v for name, v in found.items()}
