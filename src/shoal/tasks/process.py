"""This end of a process in which strangers' text is worked on: start it, talk to it, replace it.

On Linux a process that has imported everything and made its tasks stays out of reach of strangers and forks the one
that works, so that a fresh one is there in some 10 ms after a kill. Elsewhere, and where a task or a reward function
has started threads (which forks lack), a fresh one starts from nothing. `serving.py` is the other end.
"""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

import msgspec

from shoal.config import TasksConfig
from shoal.errors import UserError
from shoal.tasks.wire import Made, Ready, Request, Result, Verdict, receive, send

START_TIMEOUT = 120.0
"""Seconds for a worker to import and make its tasks."""
STARTS = 3
"""Times in a row that a process is started before its user is told that it cannot be."""
POLL = 0.005
"""Seconds at least between two looks at the processor time of a process."""

COMMAND = (sys.executable, "-P", "-m", "shoal.tasks.worker")


class GuardedProcess:
    """A process that is told what it is for and then answers requests. It starts with the first request. One thread at
    a time may use it. Close it."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        """`start`: the first message to each process of `command`."""
        self._command = command
        self._start = start
        self._process: subprocess.Popen[bytes] | None = None
        self._control: socket.socket | None = None
        """To a process that forks the one that works; None where there is no such."""
        self._channel: _Channel | None = None
        self._pid: int | None = None
        """Of the process that works, once it has said that it is ready."""

    def start(self) -> None:
        """Have it ready. Raises `UserError` with what it lacks, or if it does not come up in some tries."""
        self._ready()

    def renew(self) -> None:
        """End what works, whatever it does: after an interrupt, its replies would be taken for the next request's."""
        if self._control is None:
            self.close()
        else:
            self._fork(self._control)

    def close(self) -> None:
        """End it at once, whatever it does. Another request starts another."""
        if self._channel is not None:
            self._channel.close()
        if self._process is not None:
            if self._control is None:
                self._process.kill()
            else:  # it ends the process that works, and then itself
                _shut(self._control)
                try:
                    self._process.wait(5.0)
                except subprocess.TimeoutExpired:
                    self._process.kill()
            self._process.wait()
        self._process = self._control = self._channel = self._pid = None

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

    def _ready(self) -> _Channel:
        for _ in range(STARTS):
            try:
                if self._channel is None:
                    self._launch()
                assert self._channel is not None
                if self._pid is None:
                    self._pid = self._announced(self._channel).pid
                return self._channel
            except (TimeoutError, EOFError):
                self.close()
            except BaseException:
                self.close()
                raise
        raise UserError(f"a process did not start in {STARTS} tries: {' '.join(self._command)}")

    def _launch(self) -> None:
        # It can import what this process can. Its linear algebra gets no threads: their stacks would count as memory.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        control: socket.socket | None = None
        if sys.platform == "linux":
            control, theirs = socket.socketpair()
            with theirs:
                self._process = _popen(self._command, theirs.fileno(), theirs.fileno(), environment)
            self._channel = _Channel(control.makefile("wb"), control.makefile("rb"))
        else:
            self._process = _popen(self._command, subprocess.PIPE, subprocess.PIPE, environment)
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._channel = _Channel(self._process.stdin, self._process.stdout)
        self._channel.send(self._start)
        ready = self._announced(self._channel)
        if ready.forks and control is not None:
            self._control = control
            self._fork(control)
        else:
            self._pid = ready.pid

    def _fork(self, control: socket.socket) -> None:
        """Have the process at the other end of `control` end its fork and make another. Waits for nothing."""
        if self._channel is not None:
            self._channel.close()
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError):  # if nobody is there, the end of the channel tells
            socket.send_fds(control, [b"f"], [theirs.fileno()])
        self._channel = _Channel(ours.makefile("wb"), ours.makefile("rb"), ours)
        self._pid = None

    def _announced(self, channel: _Channel) -> Ready:
        ready = msgspec.msgpack.decode(_within(channel, START_TIMEOUT), type=Ready)
        if ready.error:
            raise UserError(ready.error)
        return ready


class _Channel:
    """Messages to a process and from it. A thread reads, since not every system can wait on a pipe."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes], connection: socket.socket | None = None) -> None:
        self._requests = requests
        self._connection = connection
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(replies,), daemon=True).start()

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # a dead process shows when its answer is waited for
            send(self._requests, message)

    def next(self, timeout: float) -> bytes:
        """Raises `queue.Empty` after `timeout` seconds, `EOFError` if nothing more can come."""
        message = self._messages.get(timeout=timeout)
        if message is None:
            raise EOFError
        return message

    def close(self) -> None:
        if self._connection is not None:
            _shut(self._connection)  # wakes the thread that reads
        with contextlib.suppress(OSError):
            self._requests.close()

    def _read(self, replies: IO[bytes]) -> None:
        with replies, contextlib.suppress(EOFError, OSError):
            while True:
                self._messages.put(receive(replies))
        self._messages.put(None)


class WorkerProcess(GuardedProcess):
    """One process of `shoal.tasks.worker`: it scores answers."""

    def __init__(self, config: TasksConfig) -> None:
        super().__init__(COMMAND, config.model_dump(mode="json"))

    def submit(self, request: Request) -> None:
        """Have jobs scored, or a stranger's candidate examined. Read its replies with `result`."""
        self._send(request)

    def result(self, seconds: float) -> Made | Result | Verdict:
        """The next reply. Raises `TimeoutError` once it took `seconds` of processor time, `EOFError` if it died."""
        return _replies.decode(self._receive(seconds))


_replies: msgspec.msgpack.Decoder[Made | Result | Verdict] = msgspec.msgpack.Decoder(Made | Result | Verdict)


def _within(channel: _Channel, timeout: float) -> bytes:
    try:
        return channel.next(timeout)
    except queue.Empty:
        raise TimeoutError from None


def _popen(command: Sequence[str], stdin: int, stdout: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # a session of its own: an interrupt from the keyboard is for the parent
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, env=environment, start_new_session=True)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
