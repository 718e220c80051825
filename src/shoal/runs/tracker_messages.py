"""What a run and the process of a tracker say to each other: lines of JSON."""

from __future__ import annotations

from typing import Literal

import msgspec

from shoal.runs.tracker_rows import TrackedRollout


class Begin(msgspec.Struct):
    """What is reported, and to which tracker."""

    tracker: str
    folder: str
    """Where the run keeps what belongs to its trackers."""
    run: str
    """The name of the run."""
    group: str
    """What else belongs together with it: the swarm that it joined; or nothing."""
    config: dict[str, bool | int | float | str]
    done: int = -1
    """The round after which a resumed run goes on."""


class Report(msgspec.Struct):
    """A round."""

    round: int
    metrics: dict[str, float]
    rollouts: list[TrackedRollout] = []
    late: bool = False
    """Whether this belongs to a round that was reported before."""


Kind = Literal["began", "refused", "done", "failed", "warned"]


class Reply(msgspec.Struct):
    """To each message: began or done, or failed. refused: nothing else is taken. warned: by the tracker itself."""

    kind: Kind
    text: str = ""
    """Where the run is shown, or what went wrong."""


class Memory(msgspec.Struct):
    """What a resumed run has to know of a tracker."""

    id: str = ""
    """Of the tracker's run."""
    round: int = -1
    """The last that was reported."""
