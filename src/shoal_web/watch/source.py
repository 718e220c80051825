"""What the page shows: a `Source`, for instance the folder of a run, a judge or a live swarm.

    class Mine(Source):
        id, title, kind = "m1", "mine", "run"
        ...
    app = make_app(Sources([Mine()]), Access())

Methods give plain data for JSON, of bounded size. They are called on threads and raise `MissingError` for what does not
exist, and `BusyError` for what takes too long.
"""

import stat
import time
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Data = dict[str, Any]

NAME = 200  # characters of a name, a task, a key of the metrics, a search
SHOWN = 300  # characters of a text in a table
WHOLE = 16_384  # characters of a text that is shown alone
LONGEST = 2000  # characters of a question that a person asks
POINTS = 1000  # points of a curve, at most


class MissingError(Exception):
    """There is no such thing."""


class BusyError(Exception):
    """It took too long, or the files could not be read."""


class Parameters(BaseModel):
    """The parameters of an address: nothing unknown, nothing unbounded."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CurveQuery(Parameters):
    """A figure against rounds."""

    metric: str = Field(max_length=NAME)
    by: Literal["node", "mean", "task"] = "node"
    """A curve for each node, of their mean, or for each task: the mean, or that of `node`."""
    node: str | None = Field(None, max_length=NAME)
    points: int = Field(300, ge=10, le=POINTS)
    smooth: int = Field(0, ge=0, le=1000)
    """Rounds of a trailing mean; a judge's rounds to a point."""


class RolloutQuery(Parameters):
    """Rollouts with completions that meet all conditions, the newest first."""

    node: str | None = Field(None, max_length=NAME)
    task: str | None = Field(None, max_length=NAME)
    least: float | None = Field(None, ge=-1e9, le=1e9)
    most: float | None = Field(None, ge=-1e9, le=1e9)
    """Bounds of the reward."""
    text: str = Field("", max_length=NAME)
    """In the question or the completion; upper and lower case are the same."""
    after: str | None = Field(None, pattern=r"^\d{1,15}\.\d{1,12}$")
    """`next` of the page before."""
    limit: int = Field(20, ge=1, le=50)


class StoryQuery(Parameters):
    """What a node learned: its held-out questions over its evaluations."""

    node: str = Field(max_length=NAME)
    question: str | None = Field(None, pattern=r"^[0-9a-f]{8}$")
    """Which one is told whole."""


class AskQuery(Parameters):
    """A question of a person."""

    text: str = Field(min_length=1, max_length=LONGEST)


class RowQuery(Parameters):
    """One completion, by the place of its row."""

    part: int = Field(ge=0, le=10**15)
    row: int = Field(ge=0, le=10**12)


class Source:
    """Something to look at. A subclass overrides what it has, and adds those of the methods `curve`, `story`,
    `settings`, `graph`, `rollouts` and `rollout` that its views need, each with its query as the argument."""

    id: str
    """Short, of letters and digits: it is part of addresses."""
    title: str
    version = 0
    """Another number when there is something new."""
    path: Path | None = None
    """The folder of a run, whose models can be asked."""
    live_for = 30.0
    """Seconds after its last change for which it counts as live."""

    @property
    def kind(self) -> str:
        """What it is, such as `run`, `node` or `judge`."""
        return "run"

    def look(self) -> None:
        """Checks whether there is something new. Cheap: called every second."""

    def changed(self) -> float:
        """When it changed last, in seconds since 1970."""
        return 0.0

    def brief(self) -> Data:
        """A line in the list of sources."""
        live = time.time() - self.changed() < self.live_for
        return {"id": self.id, "title": self.title, "kind": self.kind, "live": live, "version": self.version}

    def summary(self) -> Data:
        """The `views` of the page that it has, and what they show: nodes and their figures, keys of the metrics, tasks,
        the state of the swarm, what was refused. `about`: what a reader should know; `trouble`: what is wrong."""
        return {**self.brief(), "views": []}

    def close(self) -> None:
        """Frees what it holds."""


def changed(path: Path) -> float:
    """When a file was written last, in seconds since 1970; 0 where there is no regular file. No link is followed."""
    try:
        state = path.lstat()
    except OSError:
        return 0.0
    return state.st_mtime if stat.S_ISREG(state.st_mode) else 0.0
