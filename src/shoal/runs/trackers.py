"""Trackers get the metrics and the rollouts of each round: `--report-to`. Packages bring them by entry points.

with started(config, folder, names, group="") as trackers:
    trackers["trackio"].report(round, rows, results)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from shoal.config.own_code import find
from shoal.config.settings import Config
from shoal.errors import UserError

if TYPE_CHECKING:
    from shoal.node import RoundResult

LIMIT: Final = 60.0
"""Seconds that all trackers have for what is left when the run ends."""


class Tracker(Protocol):
    """Nothing but `wait` may keep the run waiting, and nothing may raise. docs/guides/trackers.md has one."""

    @property
    def trouble(self) -> str:
        """What is wrong with it, in one line; empty if nothing is."""
        ...

    def news(self) -> str:
        """Where it shows the run, once; else empty."""
        ...

    def report(
        self, round: int, rows: Sequence[Mapping[str, Any]], results: Sequence[tuple[str, RoundResult]], late: bool
    ) -> None:
        """Takes a round. `rows`: its metrics; `results`: with nodes' names. `late`: metrics of an earlier round."""

    def end(self) -> None:
        """There is no more to come."""

    def wait(self, seconds: float) -> None:
        """Waits until it has sent what is left. May be called again, and then does not wait for one that hangs."""


MakeTracker = Callable[[str, Config, Path, Sequence[str], str], Tracker]
"""Takes its name, the settings, the run's folder, the names of its nodes, and the swarm that its node joined."""


@runtime_checkable
class Needs(Protocol):
    """A maker of trackers that names the package that it imports."""

    needs: str


def makers_of(config: Config) -> dict[str, MakeTracker]:
    """What makes a run's trackers, by name. Raises `UserError` for an unknown one, or one that is not installed."""
    makers: dict[str, MakeTracker] = {}
    for name in config.report_to:
        makers[name] = make = find(name, "tracker", {}, "shoal.trackers")
        if isinstance(make, Needs) and make.needs and find_spec(make.needs) is None:
            raise UserError(f"--report-to {name}: it is not installed: pip install {make.needs}")
    return makers


@contextmanager
def started(config: Config, folder: Path, nodes: Sequence[str], group: str = "") -> Iterator[dict[str, Tracker]]:
    """The trackers of a run, by their names. In the end they are closed. `group`: the swarm that its node joined."""
    trackers = {name: make(name, config, folder, nodes, group) for name, make in makers_of(config).items()}
    limit = LIMIT
    try:
        yield trackers
    except KeyboardInterrupt:
        limit = 0.0
        raise
    finally:
        close(trackers.values(), limit)


def close(trackers: Collection[Tracker], limit: float = LIMIT) -> None:
    """Gives the trackers `limit` seconds, all together, for what they did not take yet."""
    deadline = time.monotonic() + limit
    for tracker in trackers:
        tracker.end()
    for tracker in trackers:
        tracker.wait(max(0.0, deadline - time.monotonic()))
