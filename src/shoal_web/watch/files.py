"""Opens files in folders that strangers may have made: only regular files, and without ever waiting for one.

A named pipe blocks whoever opens it until somebody writes; a symbolic link leads out of the folder.
"""

import os
import stat
from pathlib import Path
from typing import BinaryIO

from shoal.untrusted import open_regular


def changed(path: Path) -> float:
    """When a file was written last, in seconds since 1970; 0 where there is no regular file."""
    try:
        return _checked(path).st_mtime
    except OSError:
        return 0.0


def opened(path: Path) -> BinaryIO:
    """The file, for reading. Raises `OSError` for what is not there or not a regular file."""
    _checked(path)  # to open a device can have effects
    return open_regular(path, follow_links=False)


def _checked(path: Path) -> os.stat_result:
    state = path.lstat()
    if stat.S_ISLNK(state.st_mode):
        raise OSError("it is a symbolic link, and only files are read")
    if not stat.S_ISREG(state.st_mode):
        raise OSError("it is not a regular file")
    return state
