"""Writes that survive a kill at any instant, folders for one process alone, and errors of the disk in one line.

    write_atomically(path, data)       # afterwards `path` has its old content or all of the new
    lock = locked(folder)              # until it is closed

A locked folder has no links, pipes or devices, which may lead to somebody else's files.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from shoal.errors import UserError

DISK_FULL = "the disk is full"
UMASK = os.umask(0o077)
"""The process's mask of rights, which can only be read by setting it."""
os.umask(UMASK)


def write_atomically(path: Path, data: bytes) -> None:
    """Replaces the content of `path` by `data`. Raises `UserError`, and then `path` is as it was."""
    temporary = path.with_name(f".{path.name}.tmp")
    with disk_errors(path):
        try:
            temporary.unlink(missing_ok=True)  # left by a killed process, or a link that somebody put there
            with temporary.open("xb") as file:  # follows no link
                file.write(data)
            sync(temporary)
            temporary.replace(path)
            sync(path.parent)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def give_usual_rights(path: Path) -> None:
    """Gives `path` the rights of new files and folders here. safetensors and tempfile give fewer."""
    path.chmod((0o777 if path.is_dir() else 0o666) & ~UMASK)


def sync(path: Path) -> None:
    """Makes the disk keep a file or a folder."""
    if sys.platform == "win32":  # folders cannot be opened there, and files only for writing
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def disk_errors(path: Path, verb: str = "write") -> Iterator[None]:
    """Turns an `OSError` into a `UserError` that names `path`."""
    try:
        yield
    except OSError as error:
        gone = isinstance(error, FileNotFoundError) and not path.parent.exists()
        raise UserError(f"cannot {verb} {path}: {'its folder is gone' if gone else reason(error)}") from error


def reason(error: Exception) -> str:
    """The cause in a few words."""
    if is_full(error):
        return DISK_FULL
    return (error.strerror if isinstance(error, OSError) else None) or str(error)


def is_full(error: Exception) -> bool:
    """Whether the cause is a full disk."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return DISK_FULL in str(error) or os.strerror(errno.ENOSPC) in str(error)  # our own error, or one of safetensors


def ensure_space(path: Path, needed_bytes: int) -> None:
    """Raises `UserError` if the disk of `path`, which need not exist yet, has less than `needed_bytes` free."""
    existing = next(parent for parent in (path.absolute(), *path.absolute().parents) if parent.exists())
    free = shutil.disk_usage(existing).free
    if free < needed_bytes:
        raise UserError(
            f"the disk of {path} has {free / 1e9:.2f} GB free, and a run may need {needed_bytes / 1e9:.2f}: "
            "free some space, or choose another --out"
        )


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
