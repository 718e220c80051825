"""Child processes of this interpreter: how they are started, and what they do first.

    COMMAND = command("shoal.parallel.worker_process")      # whose `main` is called
    process = subprocess.Popen(COMMAND, env=environment(OMP_NUM_THREADS="1"), start_new_session=True)

    def main() -> None:
        requests, replies = own_pipes()
        die_with_parent()

`start_new_session`: an interrupt from the keyboard is for the parent, which ends the child.
"""

import os
import sys
import threading
from collections.abc import Callable
from typing import BinaryIO, Final

RANKS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of torchrun's: a child is no rank of the run."""


def command(module: str) -> tuple[str, ...]:
    """Calls `main` of `module`, with the words that are put behind it as `sys.argv[1:]`."""
    return sys.executable, "-P", "-c", f"import sys; from {module} import main; sys.exit(main())"


def environment(**more: str) -> dict[str, str]:
    """This process's variables, with which a child can import what this process can; and `more`."""
    inherited = {name: value for name, value in os.environ.items() if name not in RANKS}
    return inherited | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))} | more


def own_pipes() -> tuple[BinaryIO, BinaryIO]:
    """The pipes to the parent, out of reach of code that reads standard input or prints."""
    requests = os.fdopen(os.dup(0), "rb")
    replies = os.fdopen(os.dup(1), "wb")
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    return requests, replies


def die_with_parent(parent: int = 0) -> Callable[[], None]:
    """Ends this process when its parent is gone, even during an endless call. Returns a function that stops watching.
    `parent`: its process id, where it may be gone before this is called."""
    parent = parent or os.getppid()
    stopped = threading.Event()

    def watch() -> None:
        while not stopped.wait(1.0):
            if os.getppid() != parent:
                os._exit(1)

    def stop() -> None:
        stopped.set()
        thread.join()

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    return stop
