"""Writes that survive a kill at any instant, and errors of the disk in one line.

    write_atomically(path, data)

Afterwards `path` has its old content or all of the new.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

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
        raise UserError(f"cannot {verb} {path}: {reason(error)}") from error


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
