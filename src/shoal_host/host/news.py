"""What happens in a hosted swarm, as lines for its host: who came, left or is silent, whom the relay limits, and a
summary each minute.

    news = News(source, Path("host/logs/relay.log"), say=print)
    news.look()          # often; at most once a second it does something
    # 10:42:07  calm-otter-1a2b (Ada) came
    # 10:44:00  3 nodes, 1 silent; 84 rounds in the last minute; relay: connections: 5
"""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from shoal.errors import in_brief
from shoal_host.host.attendance import MINUTE, MOST, Attendance
from shoal_host.relay.forwarder import LIMITED
from shoal_web.watch.source import Source

TAIL: Final = 1 << 16
"""Bytes of the relay's log that are read at once."""


class News:
    """Looks at a live swarm (`SwarmSource`) and says what is new."""

    def __init__(
        self, source: Source, log: Path, say: Callable[[str], None], clock: Callable[[], float] = time.time
    ) -> None:
        self._source, self._log, self._clock = source, log, clock
        self._attendance = Attendance(say, clock)
        self._looked, self._summed = 0.0, clock()
        self._rounds: dict[str, int] = {}
        self._done = 0
        """Rounds since the last summary."""
        self._read = log.stat().st_size if log.exists() else 0
        self._relay = self._last = ""
        self.fault = ""
        """The first error of this program itself."""

    def look(self) -> None:
        """Says what is new since the last call. Raises nothing: a host goes on without news."""
        now = self._clock()
        if 0 <= now - self._looked < 1.0:
            return
        self._looked = now
        try:
            self._look(now)
        except Exception as error:
            if not self.fault:
                self.fault = in_brief(error)
                self._attendance.tell(f"lines may be missing here, as something failed: {self.fault}")

    def _look(self, now: float) -> None:
        if due := not 0 <= now - self._summed < MINUTE:
            self._summed = now
        nodes = [node | {"last": now - node["ago"]} for node in self._source.summary()["nodes"]]
        self._done += sum(max(0, node["round"] - self._rounds.get(node["id"], node["round"])) for node in nodes)
        self._rounds = {node["id"]: node["round"] for node in nodes}
        dropped = self._attendance.dropped
        self._attendance.look(nodes)
        self._read_relay()
        if due:
            self._summary(dropped)
            self._done = 0

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
                self._attendance.event(f"the relay {line}")
            elif line.startswith("up "):
                self._relay = line.partition(", ")[2]

    def _summary(self, dropped: int) -> None:
        states = [guest.state for guest in self._attendance.guests.values()]
        here, silent = states.count("here"), states.count("silent")
        parts = [f"{here} node{'s' * (here != 1)}" + (f", {silent} silent" if silent else "")]
        parts.append(f"{self._done} round{'s' * (self._done != 1)} in the last minute")
        parts += [f"relay: {self._relay}"] if self._relay else []
        parts += [f"{dropped} lines more than {MOST} were left out"] if dropped else []
        text = "; ".join(parts)
        if text != self._last:  # nothing happens: it is said once
            self._last = text
            self._attendance.tell(text)
