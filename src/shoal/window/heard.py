"""What nodes said of their rounds, kept while a window is open. Bounded, whoever speaks.

Against time and not against rounds: when a notice came this machine knows, and the round is a stranger's word. Nodes
that have spoken a few times have room of their own, so that many fresh keys displace each other and not them.
"""

from __future__ import annotations

import heapq
from array import array
from collections import Counter, OrderedDict
from collections.abc import Iterable
from statistics import fmean
from typing import Final

import numpy as np

from shoal.swarm.notices import Notice
from shoal.window.series import Floats, binned, points_of, trailing
from shoal.window.source import EDGES, CurveQuery, Data

KNOWN: Final = 1000
NEW: Final = 1000
"""Nodes that have spoken `PROVEN` times, and others. Those heard longest ago are forgotten."""
PROVEN: Final = 4
POINTS: Final = 600
"""Of a curve; with more, every other one is dropped."""
MAKERS: Final = 64
"""From whom one node learned that are kept, those of late."""
DRAWN: Final = 50
"""Nodes with a curve of their own, and with a line in a table four times as many."""
METRICS: Final = {"reward/local": "reward", "eval/pass@1": "pass_at_1"}
"""Figures of a notice, under the names that runs have for them."""


class Course:
    """Figures against minutes."""

    def __init__(self) -> None:
        self.at, self.values = array("d"), array("d")

    def add(self, at: float, value: float) -> None:
        self.at.append(at)
        self.values.append(value)
        if len(self.at) > POINTS:
            self.at, self.values = self.at[::2], self.values[::2]


class Speaker:
    """A node that is heard."""

    def __init__(self, notice: Notice) -> None:
        self.name = notice.name
        self.last = notice
        self.time = 0.0
        self.times = 0
        self.took = 0
        self.courses = {metric: Course() for metric in METRICS}
        self.makers: OrderedDict[str, int] = OrderedDict()
        """How many rollouts of whom it says to have learned from."""

    def add(self, notice: Notice, time: float, minute: float) -> None:
        self.last, self.time = notice, time
        self.times += 1
        for metric, field in METRICS.items():
            value = getattr(notice, field)
            if value is not None:
                self.courses[metric].add(minute, value)
        for lesson in notice.learned:
            if lesson.maker != self.name:
                self.took += 1
                self.makers[lesson.maker] = self.makers.pop(lesson.maker, 0) + 1
                if len(self.makers) > MAKERS:
                    self.makers.popitem(last=False)

    def line(self, now: float, given: int) -> Data:
        """A row of the leaderboard, with the keys that runs have for it."""
        held_out, reward = (self.courses[metric].values for metric in ("eval/pass@1", "reward/local"))
        return {
            "name": self.name,
            "id": self.last.id,
            "model": self.last.model,
            "round": self.last.round,
            "held_out": held_out[-1] if held_out else None,
            "held_out_first": held_out[0] if held_out else None,
            "reward": float(np.mean(reward[-20:])) if reward else None,
            "taken": self.took,
            "given": given,
            "ago": now - self.time,
        }


class Heard:
    """All that was heard since `start` (seconds since 1970). Not thread-safe."""

    def __init__(self, start: float) -> None:
        self.start = start
        self.notices = 0
        self.lessons = 0
        self.last = 0.0
        self._known: OrderedDict[str, Speaker] = OrderedDict()
        self._new: OrderedDict[str, Speaker] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known) + len(self._new)

    def add(self, notice: Notice, time: float) -> None:
        speaker = self._known.pop(notice.id, None) or self._new.pop(notice.id, None) or Speaker(notice)
        took = speaker.took
        speaker.add(notice, time, (time - self.start) / 60)
        self.notices += 1
        self.lessons += speaker.took - took
        self.last = time
        home, room = (self._known, KNOWN) if speaker.times >= PROVEN else (self._new, NEW)
        home[notice.id] = speaker
        if len(home) > room:
            home.popitem(last=False)

    def lines(self, now: float) -> list[Data]:
        """Of nodes, as the leaderboard has them: those that spoke more than a few times first, by their own word."""
        given = Counter[str]()
        for speaker in self._speakers():
            given.update(speaker.makers)
        found: list[Data] = []
        for speakers in (self._known, self._new):
            lines = [speaker.line(now, given[speaker.name]) for speaker in speakers.values()]
            found += sorted(lines, key=lambda line: (-_or(line["held_out"]), -_or(line["reward"]), line["name"]))
        return found[: 4 * DRAWN]

    def edges(self) -> Data:
        """From makers to learners, the heaviest first. Others may have been learned from than those that speak."""
        pairs = ((count, maker, each.name) for each in self._speakers() for maker, count in each.makers.items())
        found = heapq.nlargest(EDGES + 1, pairs)
        edges = [{"maker": maker, "node": node, "rollouts": count} for count, maker, node in found[:EDGES]]
        return {"edges": edges, "more": len(found) > EDGES}

    def curve(self, query: CurveQuery) -> Data:
        """Against minutes since `start`; of the nodes that spoke most, or the mean over all."""
        courses = [
            (each.name, course)
            for each in sorted(self._speakers(), key=lambda each: -each.times)
            if (course := each.courses.get(query.metric)) is not None and course.at
        ]
        width = max((self.last - self.start) / 60 / query.points, 0.05)
        known = [
            (name, binned(np.array(each.at), trailing(np.array(each.values), query.smooth), width))
            for name, each in courses
        ]
        shown = known[:DRAWN] if query.by == "node" else [("mean", _mean([each for _, each in known], width))]
        series = [{"name": name, "points": points_of(*each, 2)} for name, each in shown]
        return {"metric": query.metric, "against": "minutes", "rounds_per_point": 1, "series": series}

    def _speakers(self) -> list[Speaker]:
        return [*self._known.values(), *self._new.values()]


def _mean(courses: Iterable[tuple[Floats, Floats]], width: float) -> tuple[Floats, Floats]:
    """The mean over nodes in each piece of time: each counts once there, however often it speaks."""
    pieces: dict[float, list[float]] = {}
    for at, values in courses:
        for place, value in zip(at // width, values, strict=True):
            pieces.setdefault(float(place), []).append(float(value))
    places = sorted(pieces)
    return (np.array(places) + 0.5) * width, np.array([fmean(pieces[place]) for place in places])


def _or(value: float | None) -> float:
    return -1.0 if value is None else value
