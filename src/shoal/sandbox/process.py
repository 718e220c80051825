"""A guarded process, seen from outside: start it, send it requests, replace it.

    process = GuardedProcess(command("shoal.sandbox.worker"), start)
    process.send(request)
    reply = process.receive(seconds=2.0)        # bytes in MessagePack

On Linux a source is a process that has imported everything and made its tasks. It never sees a stranger's text; it
forks the processes that do: a fresh one is ready some 20 ms after a kill. Users of the same tasks share it. Elsewhere,
and where own code has started threads (which forks lack), a fresh process starts from nothing. See `pipes.py`, too.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Final

import msgspec

from shoal.child import command, linked_pair
from shoal.child import start as start_child
from shoal.errors import UserError
from shoal.sandbox.pipes import Order, Ready, send

STARTS: Final = 3  # times in a row that a process is started before its user gets an error
POLL: Final = 0.005  # seconds at least between two looks at the processor time of a process
COMMAND: Final = command("shoal.sandbox.worker")  # starts what scores answers to tasks


class GuardedProcess:
    """Runs a command that gets one first message and then answers requests. For one thread at a time. Close it."""

    def __init__(self, command_line: Sequence[str], start: object) -> None:
        """`start`: the first message to each process of `command_line`."""
        self._command = command_line
        self._start = start
        self._source: Source | None = None
        self._number = 0
        """Of this among the forks of its source."""
        self._link: Connection | None = None
        self._pid: int | None = None
        """Of the process that works, once it has said that it is ready."""

    def renew(self) -> None:
        """Replace the process, whatever it does: after an interrupt its replies would answer the wrong request."""
        if self._source is None or not self._source.forks:
            self.close()
        else:
            self._fork(self._source)

    def close(self) -> None:
        """End it at once, whatever it does. Another request starts another."""
        if self._source is not None:
            if self._source.forks:
                self._source.order(Order(self._number, 0))
                if self._link is not None:
                    self._link.close()
            release(self._source)
        self._source = self._link = self._pid = None
        self._number = 0

    @property
    def processor_seconds(self) -> float:
        """Processor time of the process and of what it started; 0 where it cannot be known."""
        return processor_seconds(self._pid) if self._pid is not None else 0.0

    def send(self, message: object) -> None:
        """Send a request. Raises `UserError` as `start` does."""
        with contextlib.suppress(OSError):  # a dead process shows as a missing answer
            send(self.start(), message)

    def receive(self, seconds: float, wall: float | None = None) -> bytes:
        """The next message. Raises `TimeoutError` once the process has worked for `seconds` on it, however busy the
        machine is, and `EOFError` if it dies; the next request then finds a fresh process.

        `wall`: seconds by the clock after which a process that only waits counts as too late; by default enough for a
        busy machine.
        """
        assert self._link is not None
        try:
            wall_end = time.monotonic() + (1.0 + 10.0 * seconds if wall is None else wall)
            if self._link.poll(POLL):  # most come at once, and reading the clock takes longer
                return _received(self._link)
            begun = self.processor_seconds
            left = seconds
            while not self._link.poll(max(POLL, min(left, wall_end - time.monotonic()))):
                left = seconds - (self.processor_seconds - begun)
                if left <= 0 or time.monotonic() >= wall_end:
                    raise TimeoutError
            return _received(self._link)
        except (TimeoutError, EOFError):
            self.renew()
            raise

    def start(self) -> Connection:
        """Start it and wait until it is ready. Raises `UserError` with what it lacks, or if it fails several times."""
        for _ in range(STARTS):
            try:
                if self._source is None:
                    self._source = acquire(self._command, self._start)
                    if self._source.forks:
                        self._fork(self._source)
                    else:
                        self._link, self._pid = self._source.link, self._source.process.pid
                assert self._link is not None
                if self._pid is None:
                    self._pid = announced(self._link).pid
                return self._link
            except (TimeoutError, EOFError):
                self.close()
            except BaseException:
                self.close()
                raise
        raise UserError(f"a process did not start in {STARTS} tries: {' '.join(self._command)}")

    def _fork(self, source: Source) -> None:
        """Have `source` replace the fork. Waits for nothing."""
        if self._link is not None:
            self._link.close()
        self._pid = None
        self._number, self._link = source.fork(self._number)


def processor_seconds(pid: int) -> float:
    """Processor time of a process and of those that it started; 0 where it cannot be known."""
    if sys.platform != "linux":
        return time.process_time() if pid == os.getpid() else 0.0
    try:
        ended = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[13:15]
        lists = Path(f"/proc/{pid}/task").glob("*/children")  # none where the kernel does not say
        started = [int(child) for each in lists for child in each.read_text().split()]
        return sum(map(_clock, (pid, *started))) + sum(map(int, ended)) / os.sysconf("SC_CLK_TCK")
    except OSError:  # it is dead, as its pipe will tell
        return 0.0


def _clock(pid: int) -> float:
    try:
        return time.clock_gettime((~pid << 3) | 2)  # what clock_getcpuclockid(3) gives
    except OSError:  # it has just ended
        return 0.0


START_TIMEOUT = 120.0  # seconds for a source to import and make its tasks


class Source:
    """A process of a command that is ready. Raises `UserError`, `TimeoutError` or `EOFError` if it never is."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        self.users = 0
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        # Linear algebra gets one thread: stacks of more would count as memory.
        self.process, self.link = start_child(command, OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.forks = False
        try:
            with contextlib.suppress(OSError):  # a dead process shows as a missing answer
                send(self.link, start)
            self.forks = announced(self.link).forks
        except BaseException:
            self.close()
            raise

    def fork(self, instead_of: int = 0) -> tuple[int, Connection]:
        """The number of a new fork and the link to it. Ends the fork `instead_of`."""
        number = next(self._numbers)
        ours, theirs = linked_pair()
        with theirs:
            self.order(Order(instead_of, number), theirs)
        return number, ours

    def order(self, order: Order, link: Connection | None = None) -> None:
        """Has forks made and ended. `link`: the new fork's."""
        with contextlib.suppress(OSError), self._lock:  # a dead source shows as the end of its forks
            send(self.link, order)
            if link:
                send_handle(self.link, link.fileno(), self.process.pid)

    def close(self) -> None:
        """End it with all its forks."""
        self.link.close()
        if self.forks:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.process.wait(5.0)  # it ends its forks first
        self.process.kill()
        self.process.wait()


_sources: dict[object, Source] = {}
_lock = threading.Lock()


def acquire(command: Sequence[str], start: object) -> Source:
    """A source of `command` with the first message `start`: a shared one, if it forks."""
    key = (tuple(command), msgspec.msgpack.encode(start), tuple(sys.path), os.getcwd())
    with _lock:
        source = _sources.get(key)
        if source is None or source.process.poll() is not None:
            source = Source(command, start)
            if source.forks:
                _sources[key] = source
        source.users += 1
        return source


def release(source: Source) -> None:
    """Ends it if nobody else uses it."""
    with _lock:
        source.users -= 1
        if source.users == 0:
            for key in [key for key, known in _sources.items() if known is source]:
                del _sources[key]
            source.close()


def announced(link: Connection) -> Ready:
    """What a new process says first."""
    if not link.poll(START_TIMEOUT):
        raise TimeoutError
    ready = msgspec.msgpack.decode(_received(link), type=Ready)
    if ready.error:
        raise UserError(ready.error)
    return ready


def _received(link: Connection) -> bytes:
    """The next message. Raises `EOFError` if there will be none."""
    try:
        return link.recv_bytes()
    except OSError as error:  # the process died before it read all that it was sent
        raise EOFError from error
