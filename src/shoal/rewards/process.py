"""This end of the process in which a reward function runs."""

from __future__ import annotations

import sys

import msgspec

from shoal.rewards.wire import Call, Returned, Start
from shoal.sandbox.process import GuardedProcess

COMMAND = (sys.executable, "-P", "-m", "shoal.rewards.worker")


class FunctionProcess(GuardedProcess):
    """One process of `shoal.rewards.worker`. It can import what this process can, and the folder it is started in."""

    def __init__(self, start: Start) -> None:
        super().__init__(COMMAND, start)

    def call(self, calls: list[Call], timeout: float) -> Returned:
        """What the function gives. Raises `TimeoutError` after `timeout` seconds, `EOFError` if the process died; the
        next call then finds a fresh one."""
        self._send(calls)
        return _returned.decode(self._receive(timeout, wall=timeout))  # it may wait for others


_returned = msgspec.msgpack.Decoder(Returned)
