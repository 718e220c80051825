"""Who comes to a swarm, leaves it or is silent, as lines with the time of day.

    attendance = Attendance(say=print)
    attendance.look(nodes)          # often: maps with id, name, display_name, round, and `last` or `left`
    # 10:42:07  calm-otter-1a2b (Ada) came
    # 10:43:30  calm-otter-1a2b (Ada) is silent for 61 s

New keys cost nothing, so lines are few in a minute; `dropped` counts the others.
"""

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from shoal.config.display_name import full_name
from shoal.untrusted import printable

SILENT: Final = 60.0
"""Seconds without a word after which a node is silent, and at least `USUAL` times its usual pause between two."""
USUAL: Final = 4
MINUTE: Final = 60.0
MOST: Final = 20
"""Lines in a minute."""


@dataclass
class Guest:
    """A node, as it was seen last."""

    heard: float
    state: str = "here"
    pause: float = 0.0
    """The usual one between two messages, in seconds."""


class Attendance:
    """Compares the nodes of a swarm with those of the last look. `clock`: seconds since 1970."""

    def __init__(self, say: Callable[[str], None], clock: Callable[[], float] = time.time) -> None:
        self._say, self._clock = say, clock
        self.guests: dict[str, Guest] = {}
        self._minute, self._lines = clock(), 0
        self.dropped = 0
        """Lines of this minute that were left out."""

    def look(self, nodes: Iterable[Mapping[str, Any]]) -> None:
        """Says what is new. Nodes that are missing now are forgotten."""
        now = self._clock()
        if not 0 <= now - self._minute < MINUTE:
            self._minute, self._lines, self.dropped = now, 0, 0
        self.guests = {node["id"]: self._seen(node, now) for node in nodes}

    def event(self, text: str) -> None:
        """A line, unless there were too many in this minute."""
        self._lines += 1
        if self._lines <= MOST:
            self.tell(text)
        else:
            self.dropped += 1

    def tell(self, text: str) -> None:
        """A line with the time of day."""
        self._say(f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))}  {printable(text, 300)}")

    def _seen(self, node: Mapping[str, Any], now: float) -> Guest:
        heard, left = node["last"], node.get("left", False)
        name = full_name(node["name"], node["display_name"])
        guest = self.guests.get(node["id"])
        if guest is None:
            guest = Guest(heard)
            if now - heard > SILENT:  # known from an earlier run
                guest.state = "silent"
            else:
                self.event(f"{name} came")
        elif heard > guest.heard + 0.5:
            if guest.state == "silent":
                self.event(f"{name} is back after {heard - guest.heard:.0f} s")
            elif guest.state == "left" and not left:
                self.event(f"{name} came again")
            else:
                guest.pause = max(heard - guest.heard, 0.8 * guest.pause)
            guest.heard, guest.state = heard, "here"
        if left and guest.state != "left":
            guest.state = "left"
            self.event(f"{name} left after round {node['round']}")
        elif guest.state == "here" and now - heard > max(SILENT, USUAL * guest.pause):
            guest.state = "silent"
            self.event(f"{name} is silent for {now - heard:.0f} s")
        return guest
