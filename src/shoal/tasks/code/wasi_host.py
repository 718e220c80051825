"""A guest in WASI, with all of the system that it has: output that is counted and thrown away, a clock that stands
still, random numbers that are always the same, and a channel to its host.

    with Guest(module, "answer") as guest:
        guest.ask(encoded("def f(x): return x"))            # encoded("ran")

WASI's other functions fail. Counts end a guest, no clock does.
"""

from __future__ import annotations

import queue
import struct
import threading
from pathlib import Path
from random import Random
from typing import Any, Final

from shoal.tasks.code.monty import MEMORY, OUTPUT
from shoal.tasks.code.wasi_guest import CHANNEL

FUEL: Final = 4 * 10**9
"""Instructions of WebAssembly: about a million turns of a loop in Python, or a second."""
MESSAGE: Final = 2**22
"""Bytes that a guest may say at once."""
STACK: Final = 2**20
"""Bytes of a guest's native stack."""
_NOW: Final = 1_767_225_600 * 10**9
"""The first of January 2026, as in Monty, in nanoseconds."""
_DONE, _BAD_DESCRIPTOR, _INVALID, _NO_FUNCTION = 0, 8, 28, 52
"""What WASI's functions return."""
_TERMINAL: Final = 2
"""What kind of file all descriptors are."""
_GUEST: Final = Path(__file__).with_name("wasi_guest.py")


class Ended(Exception):  # noqa: N818 (it is a fact about a guest, not a fault)
    """A guest has ended. The reason: "exit" if it wished, "steps" or "output" by a count, "crash" by a trap."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Guest:
    """An interpreter in a thread of its own, which answers what it is asked. Close it."""

    def __init__(self, module: Any, role: str) -> None:
        """`module`: as `wasi_module` compiles it. `role`: "answer" or "tests", see `wasi_guest`."""
        self._arguments = [b"python", b"-I", b"-S", b"-B", b"-c", _GUEST.read_bytes(), role.encode()]
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._reason = ""
        """Why it has ended."""
        self._hears, self._says = b"", b""
        self._was_asked = False
        self._printed = 0
        self._random = Random(0)
        before = threading.stack_size(4 * STACK)
        self._thread = threading.Thread(target=self._run, args=(module,), daemon=True)
        self._thread.start()
        threading.stack_size(before)

    def ask(self, message: str) -> str:
        """What the guest answers. Raises `Ended`."""
        if not self._reason:
            self._asked.put(message)
            answer = self._answered.get()
            if answer is not None:
                return answer
        raise Ended(self._reason)

    def close(self) -> None:
        """Ends it. One that still works stops at its next question, or when its fuel is used up."""
        self._asked.put(None)
        self._thread.join()

    def _run(self, module: Any) -> None:
        import wasmtime

        store = wasmtime.Store(module.engine)
        store.set_fuel(FUEL)
        store.set_limits(memory_size=MEMORY)
        linker = wasmtime.Linker(module.engine)
        own = {
            "args_sizes_get": self._args_sizes_get,
            "args_get": self._args_get,
            "environ_sizes_get": lambda caller, count, size: _write(caller, count, bytes(4), size, bytes(4)),
            "environ_get": lambda *_: _DONE,
            "clock_res_get": lambda caller, _, result: _write(caller, result, struct.pack("<Q", 1)),
            "clock_time_get": lambda caller, *given: _write(caller, given[-1], struct.pack("<Q", _NOW)),
            "poll_oneoff": _slept,
            "random_get": self._random_get,
            "sched_yield": lambda _: _DONE,
            "fd_close": lambda *_: _DONE,
            "fd_prestat_get": lambda *_: _BAD_DESCRIPTOR,
            "fd_fdstat_get": lambda caller, fd, at: _described(caller, fd, at, "<BxH4xQQ", _TERMINAL, 0, _ALL, _ALL),
            "fd_filestat_get": lambda caller, fd, at: _described(caller, fd, at, "<QQB7x40x", 0, 0, _TERMINAL),
            "fd_read": self._fd_read,
            "fd_write": self._fd_write,
            "proc_exit": self._proc_exit,
        }
        for needed in module.imports:
            function = own.get(needed.name, lambda *_: _NO_FUNCTION)
            linker.define_func(needed.module, needed.name, needed.type, function, access_caller=True)
        try:
            linker.instantiate(store, module).exports(store)["_start"](store)
            self._reason = "exit"
        except (wasmtime.Trap, wasmtime.WasmtimeError, Ended):
            self._reason = self._reason or ("crash" if store.get_fuel() else "steps")
        self._answered.put(None)

    def _end(self, reason: str) -> None:
        self._reason = reason
        raise Ended(reason)
