"""Runs a program in CPython within WASI, with no files, sockets, processes or clock.

    program = "import heapq\\ndef f(x): return heapq.nsmallest(1, x)"
    run(prepared(), program, ["assert f([2, 1]) == [1]"])           # Run(passed=1)

The program and its tests are two guests that share nothing. The host takes what the tests ask to the program, and what
it returns to the tests. All limits are counts, the same on every node.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from shoal.tasks.task import Failed, NoVerdict
from shoal_extras.programs.monty import MEMORY, Run
from shoal_extras.programs.wasi_guest import decoded, encoded
from shoal_extras.programs.wasi_module import STACK, engine, module
from shoal_extras.programs.wasi_system import Ended, System

FUEL: Final = 4 * 10**9
"""Instructions of WebAssembly that a guest may take: some 800,000 turns of a loop in Python."""
_GUEST: Final = Path(__file__).with_name("wasi_guest.py").read_bytes()
_FAILURES: Final = {
    encoded("SyntaxError"): "no program",
    encoded("IndentationError"): "no program",
    encoded("MemoryError"): "memory",
    encoded("RecursionError"): "recursion",
}
"""Of a program that raises before its tests. Any other error is "error"."""


def run(compiled: Path, program: str, tests: Sequence[str], setup: str = "") -> Run:
    """As `interpreters.run`, in WASI alone. `compiled`: what `wasi_module` prepared."""
    try:
        with closing(Guest(compiled, "answer")) as answer:
            raised = answer.ask(encoded(program))
            if raised == encoded("unknown"):
                raise NoVerdict("unsupported", "the program needs something that WASI lacks")
            if raised != encoded("ran"):
                raise Failed(_FAILURES.get(raised, "error"))
            with closing(Guest(compiled, "tests")) as checker:
                said = checker.ask(encoded([setup, *tests]))
                while said.startswith("l"):  # a question to the answer
                    said = checker.ask(answer.ask(said))
    except Ended as ended:
        if ended.reason == "crash":
            raise NoVerdict("crash") from None
        raise Failed("error" if ended.reason == "exit" else ended.reason) from None
    passed = decoded(iter(said.split()))
    if passed is None:
        raise NoVerdict("unsupported", "the program and its tests exchange what is no plain data")
    return Run(passed)


class Guest:
    """An interpreter in a thread of its own, which answers what it is asked. Close it."""

    def __init__(self, compiled: Path, role: str) -> None:
        """`role`: "answer" or "tests", see `wasi_guest`."""
        self._asked: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._said: queue.SimpleQueue[str | None] = queue.SimpleQueue()
        self._is_asked = False
        self._ended = ""
        before = threading.stack_size(4 * STACK)
        self._thread = threading.Thread(target=self._run, args=(module(compiled), role), daemon=True)
        self._thread.start()
        threading.stack_size(before)

    def ask(self, message: str) -> str:
        """What the guest says to `message`. Raises `Ended`."""
        if not self._ended:
            self._asked.put(message)
            said = self._said.get()
            if said is not None:
                return said
        raise Ended(self._ended)

    def close(self) -> None:
        """End it, at its next question or when its fuel is used up."""
        self._asked.put(None)
        self._thread.join()

    def _run(self, loaded: Any, role: str) -> None:
        import wasmtime

        arguments = [b"python", b"-I", b"-S", b"-B", b"-c", _GUEST, role.encode()]
        system = System(arguments, self._exchange)
        store = wasmtime.Store(engine())
        store.set_fuel(FUEL)
        store.set_limits(memory_size=MEMORY)
        linker = wasmtime.Linker(engine())
        reason = "crash"
        try:
            for needed in loaded.imports:
                linker.define_func(needed.module, needed.name, needed.type, system.function(needed.name), True)
            linker.instantiate(store, loaded).exports(store)["_start"](store)
            reason = "exit"
        except Ended as ended:
            reason = ended.reason
        except (wasmtime.Trap, wasmtime.WasmtimeError):
            reason = "crash" if store.get_fuel() else "steps"
        finally:
            self._ended = reason
            self._said.put(None)

    def _exchange(self, said: bytes) -> bytes:
        """What the guest is asked next."""
        if self._is_asked:
            self._said.put(" ".join(said.decode(errors="replace").split()))
        self._is_asked = True
        message = self._asked.get()
        if message is None:
            raise Ended("exit")
        return f"{message}\n".encode()
