"""Where shoal keeps what it made or fetched once: `$XDG_CACHE_HOME/shoal`, or `~/.cache/shoal`.

folder = cache_folder("models")
with alone(folder / ".lock", "another process fetches it: waiting for it"):
    ...                                  # one process at a time
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from shoal.errors import UserError


def cache_folder(kind: str) -> Path:
    """The folder of one kind of things. Raises `UserError` if there is no home folder."""
    caches = os.environ.get("XDG_CACHE_HOME", "")
    if Path(caches).is_absolute():  # the XDG specification calls others invalid
        return Path(caches) / "shoal" / kind
    try:
        return Path.home() / ".cache" / "shoal" / kind
    except RuntimeError as error:
        raise UserError(f"there is no home folder for {kind}: set XDG_CACHE_HOME to a folder") from error


@contextmanager
def alone(path: Path, waiting: str = "", busy: str = "") -> Iterator[None]:
    """Holds the file `path` for one process at a time, as long as the block or the process lasts. `waiting`: said on
    standard error if another one has it. `busy`: then raises `UserError` with this in place of waiting. Without file
    locks (Windows, some network disks) processes are not kept apart."""
    with path.open("ab") as file:
        try:
            import fcntl
        except ImportError:
            yield
            return
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if busy:
                raise UserError(busy) from None
            print(waiting, file=sys.stderr, flush=True)
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            pass  # a network disk without locks
        yield
