"""This end of a process in which strangers' text is worked on: start it, talk to it, replace it.

On Linux a source, a process that has imported everything and made its tasks, stays out of reach of strangers and forks
the processes that work, so that a fresh one is there in some 10 ms after a kill. All that are for the same tasks share
one source. Elsewhere, and where a task or a reward function has started threads (which forks lack), each is its own
source, and a fresh one starts from nothing. `serving.py` is the other end.
"""

from __future__ import annotations

import contextlib
import itertools
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
from shoal.tasks.wire import ORDER, Made, Ready, Request, Result, Verdict, receive, send

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
        self._source: _Source | None = None
        self._number = 0
        """Of this among the forks of its source."""
        self._channel: _Channel | None = None
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
            _release(self._source)
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

    def _ready(self) -> _Channel:
        for _ in range(STARTS):
            try:
                if self._source is None:
                    self._source = _acquire(self._command, self._start)
                    if self._source.forks:
                        self._fork(self._source)
                    else:
                        self._channel, self._pid = self._source.channel, self._source.process.pid
                assert self._channel is not None
                if self._pid is None:
                    self._pid = _announced(self._channel).pid
                return self._channel
            except (TimeoutError, EOFError):
                self.close()
            except BaseException:
                self.close()
                raise
        raise UserError(f"a process did not start in {STARTS} tries: {' '.join(self._command)}")

    def _fork(self, source: _Source) -> None:
        """Have `source` end its fork for this and make another. Waits for nothing."""
        if self._channel is not None:
            self._channel.close()
        self._pid = None
        self._number, self._channel = source.fork(self._number)


class _Source:
    """A process of a command that is ready. Raises `UserError`, `TimeoutError` or `EOFError` if it does not get so."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        # It can import what this process can. Its linear algebra gets no threads: their stacks would count as memory.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        environment = {**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"}
        self.users = 0
        self._control: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        if sys.platform == "linux":
            self._control, theirs = socket.socketpair()
            with theirs:
                self.process = _popen(command, theirs.fileno(), theirs.fileno(), environment)
            self.channel = _Channel(self._control.makefile("wb"), self._control.makefile("rb"))
        else:
            self.process = _popen(command, subprocess.PIPE, subprocess.PIPE, environment)
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.channel = _Channel(self.process.stdin, self.process.stdout)
        self.forks = False
        try:
            self.channel.send(start)
            self.forks = _announced(self.channel).forks
        except BaseException:
            self.close()
            raise

    def fork(self, instead_of: int = 0) -> tuple[int, _Channel]:
        """The number of a new fork, and the channel to it. Ends the other."""
        assert self._control is not None
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError), self._lock:  # if nobody is there, the end of the channel tells
            socket.send_fds(self._control, [ORDER.pack(instead_of, number)], [theirs.fileno()])
        return number, _Channel(ours.makefile("wb"), ours.makefile("rb"), ours)

    def end(self, number: int) -> None:
        """End a fork."""
        if self.forks and self._control is not None:
            with contextlib.suppress(OSError), self._lock:
                self._control.sendall(ORDER.pack(number, 0))

    def close(self) -> None:
        """End it with all its forks."""
        if self._control is not None:
            _shut(self._control)
        if self.forks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)  # it ends its forks first
        self.process.kill()
        self.process.wait()
        self.channel.close()


_sources: dict[object, _Source] = {}
_lock = threading.Lock()


def _acquire(command: Sequence[str], start: object) -> _Source:
    """A source of `command` that has been told `start`: one that others use too, if there is one that forks."""
    key = (tuple(command), msgspec.msgpack.encode(start), tuple(sys.path), os.getcwd())
    with _lock:
        source = _sources.get(key)
        if source is None or source.process.poll() is not None:
            source = _Source(command, start)
            if source.forks:
                _sources[key] = source
        source.users += 1
        return source


def _release(source: _Source) -> None:
    """Ends it if nobody else uses it."""
    with _lock:
        source.users -= 1
        if source.users == 0:
            for key in [key for key, known in _sources.items() if known is source]:
                del _sources[key]
            source.close()


def _announced(channel: _Channel) -> Ready:
    try:
        message = channel.next(START_TIMEOUT)
    except queue.Empty:
        raise TimeoutError from None
    ready = msgspec.msgpack.decode(message, type=Ready)
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


def _popen(command: Sequence[str], stdin: int, stdout: int, environment: dict[str, str]) -> subprocess.Popen[bytes]:
    # a session of its own: an interrupt from the keyboard is for the parent
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, env=environment, start_new_session=True)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
