"""A folder for one process alone, without links, pipes or devices, which may lead to somebody else's files."""

from __future__ import annotations

import errno
import os
import stat
import sys
from pathlib import Path
from typing import BinaryIO

from shoal.errors import UserError
from shoal.runs.atomic import disk_errors

if sys.platform != "win32":
    import fcntl

LOCK = ".lock"


def locked(path: Path, linked: str = "", busy: str = "") -> BinaryIO:
    """A file that keeps other processes out of the folder `path` until it is closed or this process ends.

    Raises `UserError` if another process has the folder (and then says `busy`), or if anything in it is neither a file
    nor a folder. `linked`: a folder in it where programs make links for people: these are removed.
    """
    with disk_errors(path):
        file = open_own(path / LOCK, os.O_RDWR)
    try:
        if sys.platform != "win32":
            try:
                # not `flock`: forked workers would inherit it and keep the folder locked after a kill
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise UserError(
                    busy or f"another process is writing {path}: wait until it ends, or choose another --out"
                ) from None
            except OSError:
                pass  # a network disk without locks: go on unguarded
        _refuse_links(path, path / linked if linked else None)
    except BaseException:
        file.close()
        raise
    return file


def open_own(path: Path, flags: int) -> BinaryIO:
    """Opens a file for writing, creates it if needed, and does not empty it. Raises `OSError` if it is a link, has a
    second name elsewhere, or is no ordinary file: a write would go to somebody else's file."""
    safe = 0 if sys.platform == "win32" else os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
    try:
        handle = os.open(path, flags | os.O_CREAT | safe, 0o666)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):
            raise OSError(error.errno, f"{path.name} is not an ordinary file") from error
        raise
    state = os.fstat(handle)
    if not stat.S_ISREG(state.st_mode) or state.st_nlink > 1:
        os.close(handle)
        raise OSError(errno.EINVAL, f"{path.name} is not an ordinary file of its own")
    return open(handle, "r+b" if flags & os.O_RDWR else "wb")


def _refuse_links(path: Path, linked: Path | None) -> None:
    """Raises `UserError` for anything below `path` that is neither a file nor a folder. Removes links in `linked`."""
    waiting = [path]
    with disk_errors(path, "read"):
        while waiting:
            with os.scandir(waiting.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        waiting.append(Path(entry.path))
                    elif entry.is_symlink() and linked in Path(entry.path).parents:
                        os.unlink(entry.path)
                    elif not entry.is_file(follow_symlinks=False):
                        raise UserError(f"{entry.path} is neither a file nor a folder: a run has no links or pipes")
