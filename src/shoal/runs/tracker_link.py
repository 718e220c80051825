"""The run's end of a tracker's process (`runs.tracker_process` is the other)."""

from __future__ import annotations

import importlib.util
import os
import queue
import subprocess
import sys
import threading
import time
from collections import deque
from typing import IO, Final

import msgspec

from shoal.runs.tracker_messages import Begin, Reply, Report
from shoal.sandbox.import_path import import_path
from shoal.untrusted import printable

COMMAND: Final = (sys.executable, "-P", "-m", "shoal.runs.tracker_process")
RANKS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Of the environment: a tracker's process is no rank of the run."""
WAITING: Final = 500
"""Rounds that wait for a tracker, at most."""
SILENT: Final = 60.0
"""Seconds without a reply after which a user is told."""


class TrackerLink:
    """A tracker's process. One thread writes to it and one reads, so that a round waits for neither. Close it."""

    def __init__(self, begin: Begin) -> None:
        self.name = begin.tracker
        self._queue: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._waiting: deque[float] = deque()
        """When each message was sent that has no reply yet."""
        self._where = self._why = self._fatal = self._warning = ""
        self._began = False
        self._failed = self._left_out = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._ended = False
        if importlib.util.find_spec(self.name) is None:
            self._fatal = f"it is not installed: `pip install {self.name}`"
            return
        quiet = {"WANDB_SILENT": "true", "WANDB_CONSOLE": "off", "OMP_NUM_THREADS": "1", "PYTHONPATH": import_path()}
        try:
            self._process = subprocess.Popen(
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={name: value for name, value in os.environ.items() if name not in RANKS} | quiet,
                start_new_session=True,  # the run handles interrupts from the keyboard
            )
        except OSError as error:
            self._fatal = f"its process cannot start: {error.strerror}"
            return
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._reader = threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True)
        self._reader.start()
        threading.Thread(target=self._write, args=(self._process.stdin,), daemon=True).start()
        self.send(begin)

    def send(self, message: Begin | Report) -> None:
        """Hands a message over, or leaves it out if the tracker is behind."""
        if self._fatal or self._ended:
            return
        if len(self._waiting) >= WAITING:
            self._left_out += 1
            return
        self._waiting.append(time.monotonic())
        self._queue.put(msgspec.json.encode(message) + b"\n")

    def news(self) -> str:
        """Where the tracker shows the run, once; empty before and after."""
        where, self._where = self._where, ""
        return where and f"{self.name}: {where}"

    @property
    def trouble(self) -> str:
        """What is wrong with it in one line; empty if nothing is."""
        if self._fatal:
            return f"the run goes on without {self.name}: {self._fatal}"
        if self._failed:
            return f"{self.name} did not take {_rounds(self._failed)}: {self._why}"
        if self._left_out:
            return f"{self.name} is slower than the run: {_rounds(self._left_out)} left out"
        if self._waiting and not self._ended and time.monotonic() - self._waiting[0] > SILENT:
            return f"{self.name} has not answered for a minute; the run goes on"
        return self._warning and f"{self.name}: {self._warning}"

    def end(self) -> None:
        """Says that there is no more to come."""
        if not self._ended:
            self._ended = True
            self._queue.put(None)

    def close(self, limit: float) -> None:
        """Ends the process, within `limit` seconds if it does not end by itself. `end` comes first."""
        if self._process is None:
            return
        try:
            self._process.wait(limit)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
            late = f"no answer within {limit:.0f} seconds at the end"
            if self._began:
                self._failed += len(self._waiting)
                self._why = self._why or late
            else:
                self._fatal = self._fatal or late
        self._reader.join()

    def _write(self, stream: IO[bytes]) -> None:
        try:
            with stream:
                while line := self._queue.get():
                    stream.write(line)
                    stream.flush()
        except OSError:  # the process ended: the reader says so
            pass

    def _read(self, stream: IO[bytes]) -> None:
        with stream:
            for line in stream:
                if line.endswith(b"\n"):  # else it was killed while it wrote
                    self._take(msgspec.json.decode(line, type=Reply))
        assert self._process is not None
        code = self._process.wait()
        if not self._ended and not self._fatal:
            self._fatal = f"its process ended with code {code}"

    def _take(self, reply: Reply) -> None:
        if reply.kind in ("began", "done", "failed"):
            self._waiting.popleft()
        match reply.kind:
            case "began":
                self._began, self._where = True, printable(reply.text)
            case "refused":
                self._fatal = reply.text
            case "failed":
                self._failed += 1
                self._why = self._why or reply.text
            case "warned":
                self._warning = reply.text


def _rounds(count: int) -> str:
    return "1 round" if count == 1 else f"{count} rounds"
