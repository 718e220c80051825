"""The window beside a run: `shoal watch` as a process of its own, which opens it in the browser.

    with Window(Path("runs/one"), say=print) as window:    # says where it is, once it is there
        ...
        window.wait()                                      # until Ctrl-C

Ctrl-C in the terminal reaches the run alone, which ends this process; if the run is killed, it ends by itself.
"""

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Self

from shoal.child import command, die_with_parent, environment
from shoal.untrusted import printable

COMMAND: Final = command("shoal.cli.window")
PATIENCE: Final = 5.0
"""Seconds for it to end."""
LONGEST: Final = 1 << 12
"""Bytes of a line that are read."""


class Window:
    """A process that shows a run. `say` gets a line: where it is, or why there is none."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        self.address = ""
        self._process = subprocess.Popen(
            [*COMMAND, str(folder.absolute())],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,  # the run handles interrupts from the keyboard
        )
        threading.Thread(target=self._read, args=(say,), daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def wait(self) -> None:
        """Returns when it has ended, or after Ctrl-C."""
        try:
            self._process.wait()
        except KeyboardInterrupt:
            print()

    def _read(self, say: Callable[[str], None]) -> None:
        """Reads what it and the browser print, to the end, so that neither has to wait."""
        assert self._process.stdout is not None
        last: deque[str] = deque(maxlen=1)
        while line := self._process.stdout.readline(LONGEST):
            last.append(line.decode(errors="replace").strip())
            if not self.address and (found := re.search(r" at (http://\S+)  \(Ctrl-C ends it\)$", last[0])):
                self.address = found[1]
                say(f"window         {self.address}  (Ctrl-C ends it, too)")
        if not self.address and self._process.wait() > 0:
            say(f"window         none: {printable(''.join(last), 200)}")


def main() -> int:
    """`shoal watch FOLDER`, which ends when its parent does."""
    from shoal.cli.main import main as shoal

    die_with_parent()
    return shoal(["watch", sys.argv[1]])
