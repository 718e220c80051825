"""This end of the process in which a reward function runs: start it, ask it, kill it."""

from __future__ import annotations

import contextlib
import os
import queue
import subprocess
import sys
import threading
from typing import IO

import msgspec

from shoal.errors import UserError
from shoal.rewards.wire import Call, Returned, Start
from shoal.tasks.process import START_TIMEOUT
from shoal.tasks.wire import Ready, receive, send

COMMAND = (sys.executable, "-P", "-m", "shoal.rewards.worker")


class FunctionProcess:
    """One process of `shoal.rewards.worker`, as `shoal.tasks.process.WorkerProcess` is one of the verifier's."""

    def __init__(self, start: Start) -> None:
        # It can import what this process can, and the folder it is started in.
        path = os.pathsep.join(os.path.abspath(entry) for entry in sys.path)
        self._process = subprocess.Popen(
            COMMAND,
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
        """Raises `UserError` if the function cannot be had, `TimeoutError` or `EOFError` if it does not come up."""
        ready = msgspec.msgpack.decode(self._next(START_TIMEOUT), type=Ready)
        if ready.error:
            raise UserError(ready.error)

    def call(self, calls: list[Call], timeout: float) -> Returned:
        """What the function gives. Raises `TimeoutError` after `timeout` seconds, `EOFError` if the process is dead."""
        self._send(calls)
        return _returned.decode(self._next(timeout))

    def kill(self) -> None:
        """End it at once, whatever it does."""
        self._process.kill()
        self._process.wait()
        with contextlib.suppress(BrokenPipeError):
            self._requests.close()

    def _send(self, message: object) -> None:
        with contextlib.suppress(BrokenPipeError):  # a dead worker shows when its answer is waited for
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


_returned = msgspec.msgpack.Decoder(Returned)
