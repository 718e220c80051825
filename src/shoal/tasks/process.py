"""This end of a process in which strangers' text is worked on: start it, talk to it, kill it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import IO

import msgspec

from shoal.config import TasksConfig
from shoal.errors import UserError
from shoal.tasks.wire import Job, Ready, Result, receive, send

START_TIMEOUT = 120.0
"""Seconds for a worker to import and make its tasks."""

COMMAND = (sys.executable, "-P", "-m", "shoal.tasks.worker")


class GuardedProcess:
    """A process that is told what it is for, says that it is ready, and answers. A thread reads what it says, since not
    every system can wait on a pipe."""

    def __init__(self, command: Sequence[str], start: object) -> None:
        # It can import what this process can. Its linear algebra gets no threads: their stacks would count as memory.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
            start_new_session=True,  # an interrupt from the keyboard is the parent's to handle
        )
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._requests = self._process.stdin
        self._messages: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(self._process.stdout,), daemon=True).start()
        self._send(start)

    def wait_ready(self) -> None:
        """Raises `UserError` with what it lacks, `TimeoutError` or `EOFError` if it does not come up."""
        ready = msgspec.msgpack.decode(self._next(START_TIMEOUT), type=Ready)
        if ready.error:
            raise UserError(ready.error)

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # a dead worker shows when its result is waited for
            send(self._requests, message)

    def _next(self, timeout: float) -> bytes:
        try:
            message = self._messages.get(timeout=timeout)
        except queue.Empty:
            raise TimeoutError from None
        if message is None:
            raise EOFError
        return message

    def _read(self, replies: IO[bytes]) -> None:
        with replies, contextlib.suppress(EOFError):
            while True:
                self._messages.put(receive(replies))
        self._messages.put(None)


class WorkerProcess(GuardedProcess):
    """One process of `shoal.tasks.worker`: the verifier's."""

    def __init__(self, config: TasksConfig) -> None:
        super().__init__(COMMAND, config.model_dump(mode="json"))

    def submit(self, jobs: list[Job]) -> None:
        """Have `jobs` scored; there is a `result` for each, in order."""
        self._send(jobs)

    def result(self, timeout: float) -> Result:
        """The next result. Raises `TimeoutError` after `timeout` seconds, `EOFError` if the worker is dead."""
        return _results.decode(self._next(timeout))


_results = msgspec.msgpack.Decoder(Result)
