"""Reports the state of a joined node's swarm: in the display, and in a file of the run's folder for `shoal status`."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.membership.connection import SwarmConnection
from shoal.runs.atomic import write_atomically
from shoal.runs.folder import STATUS
from shoal.runs.swarm_status import lines
from shoal.runs.watcher import Watcher
from shoal.untrusted import json_safe

INTERVAL = 2.0  # seconds between two reports while a round takes long


class StatusReporter(Watcher):
    """Stands between a run and its watcher. Close it."""

    def __init__(self, watcher: Watcher, member: SwarmConnection, folder: Path, wanted: int) -> None:
        """`wanted`: J, the rollouts of others that an update can use."""
        self._watcher = watcher
        self._member = member
        self._folder = folder
        self._note = self._noted = ""
        self._pool = {"rollouts": 0, "live": 0, "wanted": wanted}
        self._share: float | None = None
        self._warned = False
        self._closed = threading.Event()
        self._lock = threading.Lock()
        """The run's thread and this object's own report one after the other."""
        self._thread = threading.Thread(target=self._repeat, name="shoal-status", daemon=True)
        self._thread.start()

    def say(self, text: str) -> None:
        self._watcher.say(text)

    def status(self, text: str) -> None:
        self._watcher.status(text)

    def note(self, text: str) -> None:
        self._note = text

    def update(self, rows: Sequence[Mapping[str, Any]], round: int) -> None:
        row = rows[0]
        if row.get("rollouts/pool") is not None:
            self._pool |= {"rollouts": row["rollouts/pool"], "live": row["rollouts/live_pool"]}
        self._share = row.get("gradient/peers")
        self._watcher.update(rows, round)
        self._report()

    def example(self, row: Mapping[str, Any]) -> None:
        self._watcher.example(row)

    def before(self, rows: Sequence[Mapping[str, Any]]) -> None:
        self._watcher.before(rows)

    def warn(self, text: str) -> None:
        self._watcher.warn(text)

    def close(self) -> None:
        """Notes in the file that the node has ended."""
        self._closed.set()
        self._thread.join()
        self._write(self._status() | {"ended": True})

    def _repeat(self) -> None:
        while not self._closed.wait(INTERVAL):
            self._report()

    def _report(self) -> None:
        with self._lock:
            status = self._status()
            self._write(status)
            if status["warning"] and not self._warned:
                self._warned = True
                self._watcher.warn(status["warning"])
            self._watcher.panel(lines(status, self._share))
            note = "; ".join(filter(None, (status["note"], self._note)))
            if note != self._noted:  # what others note in between stays, such as that the run is stopping
                self._noted = note
                self._watcher.note(note)

    def _status(self) -> dict[str, Any]:
        return self._member.status() | {"pool": self._pool, "ended": False}

    def _write(self, status: Mapping[str, Any]) -> None:
        with contextlib.suppress(UserError):  # the run itself reports a full disk
            write_atomically(self._folder / STATUS, json.dumps(json_safe(status)).encode())
