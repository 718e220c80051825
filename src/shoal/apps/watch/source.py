"""What the window shows: a `Source`. Folders of runs are some (`folders`), a judge (`judge`) and a live swarm (`swarm`)
others.

    class Mine(WithoutRollouts):
        id, title, kind, version = "m1", "mine", "run", 0
        ...
    app = make_app(Fixed([Mine()]), Access())

Methods return plain data that JSON can say, with bounded sizes, and are called on threads. They raise
`MissingError` for what does not exist.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Literal, Protocol

from pydantic import BaseModel, ConfigDict, Field

Data = dict[str, Any]

NAME = 200
"""Characters of a name, a task, a key of the metrics."""
QUERY = 200
"""Characters of what is searched for."""
PAGE = 50
"""Rows of a page of rollouts."""
SHOWN = 300
"""Characters of a text in a table."""
WHOLE = 4000
"""Characters of a text where it stands for itself; more comes in pieces."""
PIECE = 65_536
"""Characters of a piece."""
POINTS = 1000
"""Points of a curve, at most."""
EDGES = 400
"""Of the graph of who learned from whom."""


class MissingError(Exception):
    """There is no such thing."""


class Parameters(BaseModel):
    """What may stand after the question mark of an address: nothing unknown, nothing unbounded."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class CurveQuery(Parameters):
    """A figure against rounds."""

    metric: str = Field(max_length=NAME)
    by: Literal["node", "mean"] = "node"
    points: int = Field(300, ge=10, le=POINTS)
    smooth: int = Field(0, ge=0, le=1000)
    """Rounds of a trailing mean; a judge's windows."""


class TaskQuery(Parameters):
    """Held-out pass@1 of each task, of one node or of their mean."""

    node: str | None = Field(None, max_length=NAME)
    points: int = Field(200, ge=10, le=POINTS)
    smooth: int = Field(0, ge=0, le=1000)
    """Rounds of a trailing mean; a judge's windows."""


class GraphQuery(Parameters):
    """Who learned from whom."""

    rounds: int = Field(0, ge=0, le=1_000_000)
    """The last ones of each learner; 0 for all."""


class RolloutQuery(Parameters):
    """Which completions: all conditions hold, the newest come first."""

    node: str | None = Field(None, max_length=NAME)
    task: str | None = Field(None, max_length=NAME)
    learner: str | None = Field(None, max_length=NAME)
    """A node that learned from the rollout; "*" for any but its maker."""
    least: float | None = Field(None, ge=-1e9, le=1e9)
    most: float | None = Field(None, ge=-1e9, le=1e9)
    """Bounds of the reward."""
    first: int | None = Field(None, ge=0, le=1 << 53)
    last: int | None = Field(None, ge=0, le=1 << 53)
    """Bounds of the round."""
    live: bool | None = None
    finish: Literal["stop", "length"] | None = None
    text: str = Field("", max_length=QUERY)
    """In the question or the completion, whatever the case of its letters."""
    after: str | None = Field(None, pattern=r"^\d{1,15}\.\d{1,12}$")
    """Where the page before ended."""
    limit: int = Field(PAGE, ge=1, le=200)


class RowQuery(Parameters):
    """One completion, by the place of its row."""

    part: int = Field(ge=0, le=10**15)
    row: int = Field(ge=0, le=10**12)


class TextQuery(RowQuery):
    """A piece of a text."""

    field: Literal["question", "completion"]
    offset: int = Field(0, ge=0, le=1 << 40)


class Source(Protocol):
    """Something to look at."""

    @property
    def id(self) -> str:
        """Short, of letters and digits: it stands in addresses."""

    @property
    def title(self) -> str: ...

    @property
    def kind(self) -> str:
        """What it is, as `run`, `node` or `judge`: the page shows what it has."""

    @property
    def version(self) -> int:
        """Another number when there is something new."""

    def look(self) -> None:
        """See whether there is something new. Cheap: called every second."""

    def brief(self) -> Data:
        """A line in the list of sources."""

    def summary(self) -> Data:
        """Which `views` of the page it has, and what they show: nodes and how they stand, keys of the metrics, tasks,
        how the swarm stands, what was refused. `about`: what a reader should know; `trouble`: what is wrong."""

    def curve(self, query: CurveQuery) -> Data: ...

    def tasks(self, query: TaskQuery) -> Data: ...

    def graph(self, query: GraphQuery) -> Data: ...

    def rollouts(self, query: RolloutQuery) -> Data:
        """A page of completions."""

    def rollout(self, query: RowQuery) -> Data:
        """All completions of the rollout that has this one, and who learned from it."""

    def text(self, query: TextQuery) -> Data: ...


class WithoutRollouts:
    """A source's answer to who asks for texts that it does not have."""

    def rollouts(self, query: RolloutQuery) -> Data:
        raise MissingError("there are no rollouts here")

    def rollout(self, query: RowQuery) -> Data:
        raise MissingError("there are no rollouts here")

    def text(self, query: TextQuery) -> Data:
        raise MissingError("there are no rollouts here")


def brief_of(source: Source, changed: float, lively: float) -> Data:
    """The usual line of a source that `changed` last (seconds since 1970); it is live for so many seconds after."""
    live = time.time() - changed < lively
    return {"id": source.id, "title": source.title, "kind": source.kind, "changed": changed, "live": live}


class Sources(Protocol):
    """What there is to look at."""

    def all(self) -> list[Source]: ...

    def get(self, id: str) -> Source:
        """Raises `MissingError`."""

    def look(self) -> None:
        """Call `look` of those that were opened, and see whether there are others."""


class Fixed:
    """`Sources` that are given once."""

    def __init__(self, sources: list[Source]) -> None:
        self._sources = {source.id: source for source in sources}

    def all(self) -> list[Source]:
        return list(self._sources.values())

    def get(self, id: str) -> Source:
        try:
            return self._sources[id]
        except KeyError:
            raise MissingError(f"there is no run {id}") from None

    def look(self) -> None:
        for source in self._sources.values():
            source.look()


class Together:
    """Several `Sources` as one."""

    def __init__(self, parts: Sequence[Sources]) -> None:
        self._parts = parts

    def all(self) -> list[Source]:
        return [source for part in self._parts for source in part.all()]

    def get(self, id: str) -> Source:
        for part in self._parts:
            with suppress(MissingError):
                return part.get(id)
        raise MissingError(f"there is no run {id}")

    def look(self) -> None:
        for part in self._parts:
            part.look()
