"""Starts the parts of a host, starts each again that ends, and stops them in order.

    with Supervisor(parts, Path("host/logs"), say=print) as supervisor:
        supervisor.start(stop)
        supervisor.watch(stop)         # until the event is set

Each part is a process of its own with a log of its own. One that ends starts again alone, after a pause that doubles
each time. If the supervisor itself is killed, all parts end within a second.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, Self

from shoal.child import command, die_with_parent, environment
from shoal.errors import UserError
from shoal.runs.disk import open_own
from shoal.untrusted import printable
from shoal_host.host.parts import Part

COMMAND: Final = command("shoal_host.host.supervisor")
PAUSE, LONGEST = 1.0, 60.0
"""Seconds until a part that ended starts again: the first time, and at most."""
STEADY: Final = 60.0
"""Seconds after which a part counts as working, so that the next pause is short again."""
TICK: Final = 0.2
READY: Final = 90.0
"""Seconds that a part may take until the next one starts."""
PATIENCE: Final = 10.0
"""Seconds that a part may take to end in order."""
MOST_LOG: Final = 16 << 20
"""Bytes of a log, which is emptied then."""
TAIL: Final = 2048
"""Bytes of a log in which its last line is looked for."""


class Supervised:
    """A part, over several lives."""

    def __init__(self, part: Part, log: Path) -> None:
        self.part, self.log = part, log
        self.process: subprocess.Popen[bytes] | None = None
        self.restarts = 0
        """In a row."""
        self._started = self._due = 0.0

    def start(self) -> None:
        """Raises `UserError` if its log cannot be written."""
        try:
            with open_own(self.log, os.O_WRONLY | os.O_APPEND) as log:
                self.process = subprocess.Popen(
                    [*COMMAND, str(os.getpid()), *self.part.words],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=environment(PYTHONUNBUFFERED="1"),
                    start_new_session=True,  # the supervisor handles interrupts from the keyboard
                )
        except OSError as error:
            raise UserError(f"cannot start the {self.part.name}: {error.strerror or error}") from error
        self._started = time.monotonic()

    def look(self, say: Callable[[str], None]) -> None:
        """Starts it again if it has ended and its pause is over; says so when it ends."""
        now = time.monotonic()
        if self.process is None:
            if now >= self._due:
                try:
                    self.start()
                except UserError as error:  # a full disk, or no process left: the other parts go on
                    self._failed(str(error), say)
            return
        code = self.process.poll()
        if code is None:
            with contextlib.suppress(OSError):  # somebody has removed it
                if self.log.stat().st_size > MOST_LOG:
                    os.truncate(self.log, 0)
            return
        self.process = None
        if now - self._started > STEADY:
            self.restarts = 0
        self._failed(f"the {self.part.name} ended ({self._why(code)})", say)

    def stop(self) -> None:
        """Ends it in order, or else at once."""
        if self.process is None:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def _failed(self, what: str, say: Callable[[str], None]) -> None:
        """Says what happened, and when it starts again."""
        self.restarts += 1
        pause = min(LONGEST, PAUSE * 2.0 ** min(self.restarts - 1, 10))
        self._due = time.monotonic() + pause
        say(f"{what}: restart {self.restarts} in {pause:.0f} s; see {self.log}")

    def _why(self, code: int) -> str:
        if code < 0:
            return f"killed by signal {-code}"
        try:
            last = self.log.read_bytes()[-TAIL:].decode(errors="replace").strip().splitlines()
        except OSError:
            last = ["its log is gone"]
        return f"exit {code}: {printable(last[-1] if last else 'it says nothing', 200)}"


class Supervisor:
    """The parts of a host. `say` gets a line for each that ends. Leaving the block stops them, the last one first."""

    def __init__(self, parts: Sequence[Part], logs: Path, say: Callable[[str], None]) -> None:
        self.parts = [Supervised(part, logs / f"{part.name}.log") for part in parts]
        self._say = say

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for part in reversed(self.parts):
            part.stop()

    def start(self, stop: threading.Event) -> None:
        """Starts all parts, each once the one before is ready. Returns early if `stop` is set."""
        for count, part in enumerate(self.parts, 1):
            part.start()
            end = time.monotonic() + READY
            while not part.part.is_ready() and time.monotonic() < end and not stop.wait(TICK):
                for each in self.parts[:count]:
                    each.look(self._say)
            if stop.is_set():
                return

    def watch(self, stop: threading.Event, look: Callable[[], None] = lambda: None) -> None:
        """Keeps them running until `stop` is set. Calls `look` several times a second."""
        while not stop.wait(TICK):
            look()
            for part in self.parts:
                part.look(self._say)


def main() -> int:
    """A part: `PID WORDS`, which is `shoal WORDS` and ends when its supervisor, the process PID, does."""
    from shoal.cli.main import main as shoal

    die_with_parent(int(sys.argv[1]))
    return shoal(sys.argv[2:])
