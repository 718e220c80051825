"""Starts guarded processes, and on Linux forks them from one that is ready.

On Linux a source is a process that has imported everything and made its tasks. It never sees a stranger's text; it
forks the processes that do, so that a fresh one is ready some 20 ms after a kill. All users of the same tasks share one
source. Elsewhere, and where a task or a reward function has started threads (which forks lack), each process is its own
source, and a fresh one starts from nothing. `pipes.py` is the other end.
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
from collections.abc import Sequence
from typing import IO

import msgspec

from shoal.child import environment
from shoal.errors import UserError
from shoal.sandbox.messages import ORDER, Ready, receive, send

START_TIMEOUT = 120.0
"""Seconds for a source to import and make its tasks."""


class Source:
    """A process of a command that is ready. Raises `UserError`, `TimeoutError` or `EOFError` if it never is."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        # Linear algebra gets one thread: stacks of more would count as memory.
        variables = environment(OPENBLAS_NUM_THREADS="1", OMP_NUM_THREADS="1")
        self.users = 0
        self._control: socket.socket | None = None
        self._numbers = itertools.count(1)
        self._lock = threading.Lock()
        if sys.platform == "linux":
            self._control, theirs = socket.socketpair()
            with theirs:
                self.process = _popen(command, theirs.fileno(), theirs.fileno(), variables)
            self.channel = Channel(self._control.makefile("wb"), self._control.makefile("rb"))
        else:
            self.process = _popen(command, subprocess.PIPE, subprocess.PIPE, variables)
            assert self.process.stdin is not None
            assert self.process.stdout is not None
            self.channel = Channel(self.process.stdin, self.process.stdout)
        self.forks = False
        try:
            self.channel.send(start)
            self.forks = announced(self.channel).forks
        except BaseException:
            self.close()
            raise

    def fork(self, instead_of: int = 0) -> tuple[int, Channel]:
        """The number of a new fork and the channel to it. Ends the fork `instead_of`."""
        assert self._control is not None
        number = next(self._numbers)
        ours, theirs = socket.socketpair()
        with theirs, contextlib.suppress(OSError), self._lock:  # a dead source shows as the end of the channel
            socket.send_fds(self._control, [ORDER.pack(instead_of, number)], [theirs.fileno()])
        return number, Channel(ours.makefile("wb"), ours.makefile("rb"), ours)

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


def announced(channel: Channel) -> Ready:
    try:
        message = channel.next(START_TIMEOUT)
    except queue.Empty:
        raise TimeoutError from None
    ready = msgspec.msgpack.decode(message, type=Ready)
    if ready.error:
        raise UserError(ready.error)
    return ready


class Channel:
    """Messages to and from a process. A thread reads, since not every system can wait on a pipe."""

    def __init__(self, requests: IO[bytes], replies: IO[bytes], connection: socket.socket | None = None) -> None:
        self._requests = requests
        self._connection = connection
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(replies,), daemon=True).start()

    def send(self, message: object) -> None:
        with contextlib.suppress(OSError):  # a dead process shows as a missing answer
            send(self._requests, message)

    def next(self, timeout: float) -> bytes:
        """The next message. Raises `queue.Empty` after `timeout` seconds, `EOFError` if nothing more can come."""
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


def _popen(command: Sequence[str], stdin: int, stdout: int, variables: dict[str, str]) -> subprocess.Popen[bytes]:
    # a session of its own: an interrupt from the keyboard is for the parent
    return subprocess.Popen(command, stdin=stdin, stdout=stdout, env=variables, start_new_session=True)


def _shut(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
    connection.close()
