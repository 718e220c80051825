"""Opens files in folders that strangers may have made: only regular files, and without ever waiting for one.

A named pipe blocks whoever opens it until somebody writes; a symbolic link leads out of the folder.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


def state_of(path: Path) -> os.stat_result:
    """The size and times of a file. Raises `OSError` for what is not there or not a regular file."""
    return _regular(path.lstat())


def changed(path: Path) -> float:
    """When a file was written last, in seconds since 1970; 0 where there is no regular file."""
    try:
        return state_of(path).st_mtime
    except OSError:
        return 0.0


def opened(path: Path) -> BinaryIO:
    """The file, for reading. Raises `OSError` for what is not there or not a regular file."""
    state_of(path)  # to open a device can have effects
    handle = os.open(path, FLAGS)
    try:
        _regular(os.fstat(handle))  # it may have been replaced
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _regular(state: os.stat_result) -> os.stat_result:
    if stat.S_ISLNK(state.st_mode):
        raise OSError("it is a symbolic link, and only files are read")
    if not stat.S_ISREG(state.st_mode):
        raise OSError("it is not a regular file")
    return state
