"""Child processes of this interpreter: how they are started, and what they do first.

COMMAND = command("shoal.parallel.worker_process")      # whose `main` is called
process, link = start(COMMAND, OMP_NUM_THREADS="1")
link.send_bytes(b"a request")

def main() -> None:
    link = own_link()
    die_with_parent()
"""

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from typing import Final

RANKS: Final = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""Variables of torchrun's: a child is no rank of the run."""


def command(module: str) -> tuple[str, ...]:
    """Calls `main` of `module`, with the words that are put behind it as `sys.argv[1:]`."""
    return sys.executable, "-P", "-c", f"import sys; from {module} import main; sys.exit(main())"


def environment(**more: str) -> dict[str, str]:
    """This process's variables, with which a child can import what this process can; and `more`."""
    inherited = {name: value for name, value in os.environ.items() if name not in RANKS}
    return inherited | {"PYTHONPATH": os.pathsep.join(map(os.path.abspath, sys.path))} | more


def start(command_line: Sequence[str], **variables: str) -> tuple[subprocess.Popen[bytes], Connection]:
    """A child and the link to it. It has a session of its own: an interrupt from the keyboard is for the parent, which
    ends the child. `variables`: of its environment."""
    ours, theirs = linked_pair()
    with theirs:
        process = subprocess.Popen(
            command_line,
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            env=environment(**variables),
            start_new_session=True,
        )
    return process, ours


def linked_pair() -> tuple[Connection, Connection]:
    """Both ends of a link between processes."""
    ours, theirs = socket.socketpair()
    return Connection(ours.detach()), Connection(theirs.detach())


def own_link() -> Connection:
    """In a child: the link to the parent, out of reach of code that reads standard input."""
    link = Connection(os.dup(0))
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    return link


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


def limit(memory: int, seconds: int = 0) -> None:
    """Limits this process where the system can: no file grows, no core is dumped; on Linux it gets at most `memory`
    bytes more than it has now. `seconds`: of processor time; 0: any."""
    if sys.platform == "win32":
        return
    import resource

    for kind in (resource.RLIMIT_FSIZE, resource.RLIMIT_CORE):
        resource.setrlimit(kind, (0, 0))
    if seconds:
        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    if sys.platform == "linux":
        with open("/proc/self/statm") as statm:
            used = int(statm.read().split()[0]) * resource.getpagesize()
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        most = used + memory if hard == resource.RLIM_INFINITY else min(used + memory, hard)
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
