"""This end of a process in which strangers' text is worked on: start it, talk to it, replace it."""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from collections.abc import Sequence

import msgspec

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.sandbox.messages import Made, Request, Result, Verdict
from shoal.sandbox.sources import Channel, Source, acquire, announced, release

STARTS = 3
"""Times in a row that a process is started before its user is told that it cannot be."""
POLL = 0.005
"""Seconds at least between two looks at the processor time of a process."""

COMMAND = (sys.executable, "-P", "-m", "shoal.sandbox.worker")


class GuardedProcess:
    """A process that is told what it is for and then answers requests. It starts with the first request. One thread at
    a time may use it. Close it."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        """`start`: the first message to each process of `command`."""
        self._command = command
        self._start = start
        self._source: Source | None = None
        self._number = 0
        """Of this among the forks of its source."""
        self._channel: Channel | None = None
        self._pid: int | None = None
        """Of the process that works, once it has said that it is ready."""

    def start(self) -> None:
        """Have it ready. Raises `UserError` with what it lacks, or if it does not come up in some tries."""
        self._ready()

    def renew(self) -> None:
        """End what works, whatever it does: after an interrupt, its replies would be taken for the next request's."""
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
        """Processor time of the process that works, since it started; 0 where it cannot be known."""
        if sys.platform != "linux" or self._pid is None:
            return 0.0
        try:
            return time.clock_gettime((~self._pid << 3) | 2)  # what clock_getcpuclockid(3) gives
        except OSError:  # it is dead, as its pipe will tell
            return 0.0

    def _send(self, message: object) -> None:
        self._ready().send(message)

    def _receive(self, seconds: float, wall: float | None = None) -> bytes:
        """The next message. Raises `TimeoutError` once the process has worked for `seconds` on it, however busy the
        machine is, and `EOFError` if it dies; the next request then finds a fresh one.

        `wall`: seconds after which one that only waits is given up; by default long enough for a busy machine.
        """
        assert self._channel is not None
        try:
            wall_end = time.monotonic() + (1.0 + 10.0 * seconds if wall is None else wall)
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
        """Have `source` end its fork for this and make another. Waits for nothing."""
        if self._channel is not None:
            self._channel.close()
        self._pid = None
        self._number, self._channel = source.fork(self._number)


class WorkerProcess(GuardedProcess):
    """One process of `shoal.sandbox.worker`: it scores answers."""

    def __init__(self, config: TasksConfig) -> None:
        super().__init__(COMMAND, config.model_dump(mode="json"))

    def submit(self, request: Request) -> None:
        """Have jobs scored, or a stranger's candidate examined. Read its replies with `result`."""
        self._send(request)

    def result(self, seconds: float) -> Made | Result | Verdict:
        """The next reply. Raises `TimeoutError` once it took `seconds` of processor time, `EOFError` if it died."""
        return _replies.decode(self._receive(seconds))


_replies: msgspec.msgpack.Decoder[Made | Result | Verdict] = msgspec.msgpack.Decoder(Made | Result | Verdict)
