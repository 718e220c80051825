"""Trackers (trackio, wandb, tensorboard, mlflow) get the metrics and a few rollouts of each round: `--report-to`.

    with Trackers(config, folder, names) as trackers:
        trackers.report(round, rows, results)     # returns at once
        print(trackers.troubles)

Each tracker is in a process of its own (`runs.tracker_process`), so that one that prints, waits, fails or hangs
neither stops nor changes training: what it does not take is counted and left out.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from shoal.config.settings import Config
from shoal.node import RoundResult
from shoal.runs.atomic import disk_errors
from shoal.runs.folder import TRACKERS
from shoal.runs.tracker_link import TrackerLink
from shoal.runs.tracker_messages import Begin, Report
from shoal.runs.tracker_process import LIMIT
from shoal.runs.tracker_rows import tracked_metrics, tracked_rollouts
from shoal.untrusted import json_safe

Settings = dict[str, bool | int | float | str]


class Trackers:
    """The trackers that a run reports to. Close them."""

    def __init__(
        self, config: Config, folder: Path, nodes: Sequence[str] = (), group: str = "", done: int = -1
    ) -> None:
        """`folder`: of the run. `group`: the swarm that its node joined. `done`: the round after which a resumed run
        goes on: a tracker gets the metrics in the folder that it has missed."""
        self._trackers: list[TrackerLink] = []
        self._folder = folder / TRACKERS
        if config.report_to:
            with disk_errors(self._folder):
                self._folder.mkdir(exist_ok=True)
        run = folder.absolute().name + (f"-{nodes[0]}" if group else "")
        settings = tracked_config(config) | {"nodes": ", ".join(nodes)}
        for name in config.report_to:
            self._trackers.append(TrackerLink(Begin(name, str(self._folder.absolute()), run, group, settings, done)))

    def report(
        self,
        round: int,
        rows: Sequence[Mapping[str, Any]],
        results: Sequence[tuple[str, RoundResult]] = (),
        late: bool = False,
    ) -> None:
        """Hands a round to all trackers and returns at once. `rows`: its metrics; `results`: with each node's name.
        `late`: the metrics are more of a round that was reported before."""
        if self._trackers:
            report = Report(round, tracked_metrics(rows), tracked_rollouts(results), late)
            for tracker in self._trackers:
                tracker.send(report)

    def news(self) -> list[str]:
        """Where each tracker shows the run, once."""
        return [line for tracker in self._trackers if (line := tracker.news())]

    @property
    def names(self) -> str:
        return ", ".join(tracker.name for tracker in self._trackers)

    @property
    def troubles(self) -> dict[str, str]:
        """What is wrong with each that has trouble, in one line."""
        return {tracker.name: trouble for tracker in self._trackers if (trouble := tracker.trouble)}

    def close(self, limit: float = LIMIT) -> None:
        """Gives the trackers `limit` seconds, all together, for what they did not take yet."""
        for tracker in self._trackers:
            tracker.end()
        deadline = time.monotonic() + limit
        for tracker in self._trackers:
            tracker.close(max(0.0, deadline - time.monotonic()))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.close(0.0 if kind is KeyboardInterrupt else LIMIT)


def tracked_config(config: Config) -> Settings:
    """The settings by their dotted names: lists as JSON, and of the network the swarm's name alone."""
    sections = config.model_dump(mode="json")
    sections["network"] = {"swarm": config.network.swarm}
    sections["policy"]["model"] = [re.sub(r"//[^/@]*@", "//", name) for name in config.policy.model]  # no password
    sections["evaluation"].pop("judges")
    found: dict[str, Any] = {}
    for name, value in sections.items():
        found |= {f"{name}.{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
    return {name: json.dumps(json_safe(v)) if isinstance(v, list | dict) else v for name, v in found.items()}
