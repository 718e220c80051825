"""A guarded process, seen from outside: start it, send it requests, replace it.

    process = GuardedProcess(command("shoal.sandbox.worker"), start)
    process.send(request)
    reply = process.receive(seconds=2.0)        # bytes in MessagePack

`shoal.sandbox.pipes` is the other end. The verifier, reward functions and the window's reader of tables use it.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from shoal.child import command
from shoal.errors import UserError
from shoal.sandbox.sources import Channel, Source, acquire, announced, release

STARTS: Final = 3
"""Times in a row that a process is started before its user gets an error."""
POLL: Final = 0.005
"""Seconds at least between two looks at the processor time of a process."""
COMMAND: Final = command("shoal.sandbox.worker")
"""Starts what scores answers to tasks."""


class GuardedProcess:
    """Runs a command that gets one first message and then answers requests. It starts with the first request. One
    thread at a time may use it. Close it."""

    def __init__(self, command_line: Sequence[str], start: object) -> None:
        """`start`: the first message to each process of `command_line`."""
        self._command = command_line
        self._start = start
        self._source: Source | None = None
        self._number = 0
        """Of this among the forks of its source."""
        self._channel: Channel | None = None
        self._pid: int | None = None
        """Of the process that works, once it has said that it is ready."""

    def start(self) -> None:
        """Start it and wait until it is ready. Raises `UserError` with what it lacks, or if it fails several times."""
        self._ready()

    def renew(self) -> None:
        """Replace the process, whatever it does: after an interrupt its replies would answer the wrong request."""
        if self._source is None or not self._source.forks:
            self.close()
        else:
            self._fork(self._source)

    def close(self) -> None:
        """End it at once, whatever it does. Another request starts another."""
        if self._channel is not None:
            self._channel.close()
        if self._source is not None:
            self._source.end(self._number)
            release(self._source)
        self._source = self._channel = self._pid = None
        self._number = 0

    @property
    def processor_seconds(self) -> float:
        """Processor time of the process and of what it started; 0 where it cannot be known."""
        return processor_seconds(self._pid) if self._pid is not None else 0.0

    def send(self, message: object) -> None:
        """Send a request. Raises `UserError` as `start` does."""
        self._ready().send(message)

    def receive(self, seconds: float, wall: float | None = None) -> bytes:
        """The next message. Raises `TimeoutError` once the process has worked for `seconds` on it, however busy the
        machine is, and `EOFError` if it dies; the next request then finds a fresh process.

        `wall`: seconds by the clock after which a process that only waits counts as too late; by default enough for a
        busy machine.
        """
        assert self._channel is not None
        try:
            wall_end = time.monotonic() + (1.0 + 10.0 * seconds if wall is None else wall)
            with contextlib.suppress(queue.Empty):
                return self._channel.next(POLL)  # most come at once, and reading the clock takes longer
            begun = self.processor_seconds
            left = seconds
            while True:
                with contextlib.suppress(queue.Empty):
                    return self._channel.next(max(POLL, min(left, wall_end - time.monotonic())))
                left = seconds - (self.processor_seconds - begun)
                if left <= 0 or time.monotonic() >= wall_end:
                    raise TimeoutError
        except (TimeoutError, EOFError):
            self.renew()
            raise

    def _ready(self) -> Channel:
        for _ in range(STARTS):
            try:
                if self._source is None:
                    self._source = acquire(self._command, self._start)
                    if self._source.forks:
                        self._fork(self._source)
                    else:
                        self._channel, self._pid = self._source.channel, self._source.process.pid
                assert self._channel is not None
                if self._pid is None:
                    self._pid = announced(self._channel).pid
                return self._channel
            except (TimeoutError, EOFError):
                self.close()
            except BaseException:
                self.close()
                raise
        raise UserError(f"a process did not start in {STARTS} tries: {' '.join(self._command)}")

    def _fork(self, source: Source) -> None:
        """Have `source` replace the fork. Waits for nothing."""
        if self._channel is not None:
            self._channel.close()
        self._pid = None
        self._number, self._channel = source.fork(self._number)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of those that it started; 0 where it cannot be known."""
    if sys.platform != "linux":
        return time.process_time() if pid == os.getpid() else 0.0
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        return sum(map(_clock, (pid, *_children(pid)))) + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
    except OSError:  # it is dead, as its pipe will tell
        return 0.0


def _children(pid: int) -> list[int]:
    """Processes that a process started; none where the kernel does not say."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for each in lists for child in each.read_text().split()]


def _clock(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) gives
    except OSError:  # it has just ended
        return 0.0
