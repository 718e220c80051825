"""What happens in a hosted swarm, as lines for its host: who came, left or is silent, whom the relay limits, and a
summary each minute. New keys cost nothing, so lines are few in a minute.

    news = News(source, Path("host/logs/relay.log"), say=print)
    news.look()          # often; at most once a second it does something
    # 10:42:07  calm-otter-1a2b (Ada) came
    # 10:44:00  3 nodes, 1 silent; 84 rounds in the last minute; relay, with this host's own: connections: 5
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.config.display_name import full_name
from shoal.errors import in_brief
from shoal.untrusted import printable
from shoal_host.relay.forwarder import LIMITED
from shoal_web.watch.source import Source

TAIL: Final = 1 << 16
"""Bytes of the relay's log that are read at once."""
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
    round: int
    state: str = "here"
    pause: float = 0.0
    """The usual one between two messages, in seconds."""


class News:
    """Looks at a live swarm (`SwarmSource`) and says what is new. `clock`: seconds since 1970."""

    def __init__(
        self, source: Source, log: Path, say: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._log, self._say, self._clock = source, log, say, clock
        self._guests: dict[str, Guest] = {}
        self._looked, self._minute = 0.0, clock()
        self._lines = self._done = 0
        """Lines and rounds of this minute."""
        self._read = log.stat().st_size if log.exists() else 0
        self._relay = self._last = self._fault = ""

    def look(self) -> None:
        """Says what is new since the last call. Raises nothing: a host goes on without news."""
        now = self._clock()
        if 0 <= now - self._looked < 1.0:
            return
        self._looked = now
        try:
            self._guests = {node["id"]: self._seen(node, now) for node in self._source.summary()["nodes"]}
            self._read_relay()
            if not 0 <= now - self._minute < MINUTE:
                self._summary()
                self._minute, self._lines, self._done = now, 0, 0
        except Exception as error:
            if not self._fault:
                self._fault = in_brief(error)
                self._tell(f"lines may be missing here, as something failed: {self._fault}")

    def _event(self, text: str) -> None:
        """A line, unless there were too many in this minute."""
        self._lines += 1
        if self._lines <= MOST:
            self._tell(text)

    def _tell(self, text: str) -> None:
        """A line with the time of day."""
        self._say(f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))}  {printable(text, 300)}")

    def _seen(self, node: Mapping[str, Any], now: float) -> Guest:
        """A node after this look, of which something may be said."""
        round, heard, left = node["round"], now - node["ago"], node.get("left", False)
        name = full_name(node["name"], node["display_name"])
        guest = self._guests.get(node["id"])
        if guest is None:
            guest = Guest(heard, round)
            if now - heard > SILENT:  # known from an earlier run
                guest.state = "silent"
            else:
                self._event(f"{name} came")
        elif heard > guest.heard + 0.5:
            if guest.state == "silent":
                self._event(f"{name} is back after {heard - guest.heard:.0f} s")
            elif guest.state == "left" and not left:
                self._event(f"{name} came again")
            else:
                guest.pause = max(heard - guest.heard, 0.8 * guest.pause)
            guest.heard, guest.state = heard, "here"
        self._done += max(0, round - guest.round)
        guest.round = round
        if left and guest.state != "left":
            guest.state = "left"
            self._event(f"{name} left after round {round}")
        elif guest.state == "here" and now - heard > max(SILENT, USUAL * guest.pause):
            guest.state = "silent"
            self._event(f"{name} is silent for {now - heard:.0f} s")
        return guest

    def _read_relay(self) -> None:
        """Passes on whom the relay limits, and keeps its last word for the summary."""
        try:
            with self._log.open("rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(max(self._read if self._read <= size else 0, size - TAIL))
                text = log.read()
        except OSError:
            return
        whole = text[: text.rfind(b"\n") + 1]
        self._read = size - len(text) + len(whole)
        for line in whole.decode(errors="replace").splitlines():
            if line.startswith(LIMITED):
                self._event(f"the relay {line}")
            elif line.startswith("up "):
                self._relay = line.partition(", ")[2]

    def _summary(self) -> None:
        states = [guest.state for guest in self._guests.values()]
        here, silent = states.count("here"), states.count("silent")
        parts = [f"{here} node{'s' * (here != 1)}" + (f", {silent} silent" if silent else "")]
        parts.append(f"{self._done} round{'s' * (self._done != 1)} in the last minute")
        parts += [f"relay, with this host's own: {self._relay}"] if self._relay else []
        parts += [f"{self._lines - MOST} lines more than {MOST} were left out"] if self._lines > MOST else []
        text = "; ".join(parts)
        if text != self._last:  # nothing happens: it is said once
            self._last = text
            self._tell(text)
