"""What happens in a hosted swarm, as lines for its host: who came, left or is silent, whom the relay limits, and a
summary each minute.

    news = News(source, Path("host/logs/relay.log"), say=print)
    news.look()          # often; at most once a second it does something
    # 10:42:07  calm-otter-1a2b (Ada) came
    # 10:43:30  calm-otter-1a2b (Ada) is silent for 61 s
    # 10:44:00  3 nodes, 1 silent; 84 rounds in the last minute; relay: connections: 5

Nodes say themselves how they do, and new keys cost nothing: so lines about nodes are few in a minute, and all others
are counted in the summary.
"""

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from shoal.config.display_name import full_name
from shoal.untrusted import printable
from shoal_host.relay.forwarder import LIMITED
from shoal_web.watch.source import Source

SILENT: Final = 60.0
"""Seconds without a word after which a node is silent, and at least `USUAL` times its usual pause between two."""
USUAL: Final = 4
MINUTE: Final = 60.0
MOST: Final = 20
"""Lines in a minute."""
TAIL: Final = 1 << 16
"""Bytes of the relay's log that are read at once."""


@dataclass
class Guest:
    """A node, as the host saw it last."""

    heard: float
    round: int
    state: str = "here"
    pause: float = 0.0
    """The usual one between two notices, in seconds."""


class News:
    """Looks at a live swarm (`SwarmSource`) and says what is new."""

    def __init__(
        self, source: Source, log: Path, say: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._log, self._say, self._clock = source, log, say, clock
        self._guests: dict[str, Guest] = {}
        self._looked, self._summed, self._lines, self._rounds = 0.0, clock(), 0, 0
        self._read = log.stat().st_size if log.exists() else 0
        self._relay = self._last = ""

    def look(self) -> None:
        """Says what is new since the last call."""
        now = self._clock()
        if 0 <= now - self._looked < 1.0:
            return
        self._looked = now
        nodes = self._source.summary()["nodes"]
        for node in nodes:
            self._take(node, now)
        self._guests = {node["id"]: self._guests[node["id"]] for node in nodes}
        self._read_relay()
        if not 0 <= now - self._summed < MINUTE:
            self._summary()
            self._summed, self._lines, self._rounds = now, 0, 0

    def _take(self, node: Mapping[str, Any], now: float) -> None:
        guest, heard = self._guests.get(node["id"]), now - node["ago"]
        name = full_name(node["name"], node["display_name"])
        if guest is None:
            guest = self._guests[node["id"]] = Guest(heard, node["round"])
            self._event(f"{name} came")
        elif heard > guest.heard + 0.5:
            self._rounds += max(0, node["round"] - guest.round)
            if guest.state == "silent":
                self._event(f"{name} is back after {heard - guest.heard:.0f} s")
            elif guest.state == "left" and not node["left"]:
                self._event(f"{name} came again")
            else:
                guest.pause = max(heard - guest.heard, 0.8 * guest.pause)
            guest.heard, guest.round, guest.state = heard, node["round"], "here"
        if node["left"] and guest.state != "left":
            guest.state = "left"
            self._event(f"{name} left after round {node['round']}")
        elif guest.state == "here" and node["ago"] > max(SILENT, USUAL * guest.pause):
            guest.state = "silent"
            self._event(f"{name} is silent for {node['ago']:.0f} s (the last was round {node['round']})")

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

    def _event(self, text: str) -> None:
        self._lines += 1
        if self._lines <= MOST:
            self._tell(text)

    def _summary(self) -> None:
        counts = [guest.state for guest in self._guests.values()]
        here, silent = counts.count("here"), counts.count("silent")
        parts = [f"{here} node{'s' * (here != 1)}" + (f", {silent} silent" if silent else "")]
        parts.append(f"{self._rounds} round{'s' * (self._rounds != 1)} in the last minute")
        parts += [f"relay: {self._relay}"] if self._relay else []
        parts += [f"{self._lines - MOST} lines more than {MOST} were left out"] if self._lines > MOST else []
        text = "; ".join(parts)
        if text != self._last:  # nothing happens: it is said once
            self._last = text
            self._tell(text)

    def _tell(self, text: str) -> None:
        self._say(f"{time.strftime('%H:%M:%S', time.localtime(self._clock()))}  {printable(text, 300)}")
