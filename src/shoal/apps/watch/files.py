"""Opens files in folders that strangers may have made: only regular files, and without ever waiting for one.

A named pipe blocks whoever opens it until somebody writes; a symbolic link leads out of the folder.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import BinaryIO

KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}
FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def state_of(path: Path) -> os.stat_result:
    """Its size and times. Raises `OSError` for what is not there or no regular file."""
    return _regular(path.lstat())


def opened(path: Path) -> BinaryIO:
    """The file, for reading. Raises `OSError` for what is not there or no regular file."""
    state_of(path)  # to open a device can have effects
    handle = os.open(path, FLAGS)
    try:
        _regular(os.fstat(handle))  # it may have been replaced
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def reason_of(error: OSError) -> str:
    return error.strerror or str(error)


def _regular(state: os.stat_result) -> os.stat_result:
    if not stat.S_ISREG(state.st_mode):
        raise OSError(f"it is {KINDS.get(stat.S_IFMT(state.st_mode), 'no file')}, and only files are read")
    return state
