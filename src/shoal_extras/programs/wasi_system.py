"""All of the system that a guest in WASI has: output that is counted and thrown away, a clock that stands still, random
numbers that are always the same, and a channel to its host. WASI's other functions fail."""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from random import Random
from typing import Any, Final

from shoal_extras.programs.monty import OUTPUT
from shoal_extras.programs.wasi_guest import HEARS, PRINTS, SAYS

MESSAGE: Final = 2**22
"""Bytes that a guest may say at once."""
NOW: Final = 1_767_225_600 * 10**9
"""The first of January 2026, as in Monty, in nanoseconds."""
_DONE, _BAD_DESCRIPTOR, _INVALID, _NO_FUNCTION = 0, 8, 28, 52
"""What WASI's functions return."""
_TERMINAL: Final = 2
"""The kind of file that all descriptors are."""
_AT_ONCE: Final = 2**16
"""Bytes of random numbers, or areas of memory, that one call may ask for."""


class Ended(Exception):  # noqa: N818 (it is a fact about a guest, not a fault)
    """A guest has ended. The reason: "exit" if it wished so, "steps" or "output" by a count, "crash" by a trap."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class System:
    """What one guest has."""

    def __init__(self, arguments: Sequence[bytes], exchange: Callable[[bytes], bytes]) -> None:
        """`exchange`: gives what the host says next for what the guest has said; may raise `Ended`."""
        self._arguments = b"".join(each + b"\0" for each in arguments)
        self._starts = [sum(len(each) + 1 for each in arguments[:place]) for place, _ in enumerate(arguments)]
        self._exchange = exchange
        self._says, self._hears = bytearray(), b""
        self._printed = 0
        self._random = Random(0)

    def function(self, name: str) -> Callable[..., int | None]:
        """One of WASI's functions. It takes the caller (`wasmtime.Caller`), and then what WASI says."""
        match name:
            case "args_sizes_get":
                return lambda caller, count, size: _put(caller, {count: len(self._starts), size: len(self._arguments)})
            case "args_get":
                return self._args_get
            case "environ_sizes_get":
                return lambda caller, count, size: _put(caller, {count: 0, size: 0})
            case "clock_time_get":
                return lambda caller, clock, precision, at: _write(caller, at, struct.pack("<Q", NOW))
            case "random_get":
                return self._random_get
            case "poll_oneoff":
                return _poll
            case "fd_fdstat_get":
                return lambda caller, fd, at: _describe(caller, fd, at, struct.pack("<B7xqq", _TERMINAL, -1, -1))
            case "fd_filestat_get":
                return lambda caller, fd, at: _describe(caller, fd, at, struct.pack("<16xB47x", _TERMINAL))
            case "fd_read":
                return self._fd_read
            case "fd_write":
                return self._fd_write
            case "fd_prestat_get":
                return lambda caller, fd, at: _BAD_DESCRIPTOR
            case "environ_get" | "fd_close" | "sched_yield":
                return lambda *_: _DONE
            case "proc_exit":
                return self._proc_exit
        return lambda *_: _NO_FUNCTION

    def _args_get(self, caller: Any, at: int, text: int) -> int:
        _put(caller, {at + 4 * place: text + start for place, start in enumerate(self._starts)})
        return _write(caller, text, self._arguments)

    def _random_get(self, caller: Any, at: int, size: int) -> int:
        return _write(caller, at, self._random.randbytes(size)) if 0 <= size <= _AT_ONCE else _INVALID

    def _fd_read(self, caller: Any, fd: int, areas: int, count: int, at: int) -> int:
        if fd != HEARS:
            return _BAD_DESCRIPTOR
        if not self._hears:
            self._hears, self._says = self._exchange(bytes(self._says)), bytearray()
        start, size = _areas(caller, areas, count)[0]
        given, self._hears = self._hears[:size], self._hears[size:]
        _write(caller, start, given)
        return _put(caller, {at: len(given)})

    def _fd_write(self, caller: Any, fd: int, areas: int, count: int, at: int) -> int:
        if fd not in (SAYS, PRINTS):
            return _BAD_DESCRIPTOR
        memory = caller["memory"]
        data = b"".join(memory.read(caller, start, start + size) for start, size in _areas(caller, areas, count))
        if fd == SAYS:
            self._says += data
        else:
            self._printed += len(data)
        if self._printed > OUTPUT or len(self._says) > MESSAGE:
            raise Ended("output")
        return _put(caller, {at: len(data)})

    def _proc_exit(self, caller: Any, code: int) -> None:
        raise Ended("exit")


def _areas(caller: Any, at: int, count: int) -> list[tuple[int, int]]:
    """Start and size of the first areas of memory in a list."""
    return list(struct.iter_unpack("<II", caller["memory"].read(caller, at, at + 8 * min(count, 16))))


def _poll(caller: Any, waits: int, events: int, count: int, at: int) -> int:
    """Whatever a guest waits for has happened: sleeping takes no time."""
    for place in range(min(count, 16)):
        tag, kind = struct.unpack("<8sB", caller["memory"].read(caller, waits + 48 * place, waits + 48 * place + 9))
        _write(caller, events + 32 * place, struct.pack("<8sHB21x", tag, 0, kind))
    return _put(caller, {at: count})


def _describe(caller: Any, fd: int, at: int, data: bytes) -> int:
    return _write(caller, at, data) if fd in (HEARS, SAYS, PRINTS) else _BAD_DESCRIPTOR


def _put(caller: Any, numbers: dict[int, int]) -> int:
    """Writes each number at its address."""
    for at, number in numbers.items():
        _write(caller, at, struct.pack("<I", number))
    return _DONE


def _write(caller: Any, at: int, data: bytes) -> int:
    caller["memory"].write(caller, data, at)
    return _DONE
