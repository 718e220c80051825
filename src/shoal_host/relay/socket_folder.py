"""The folder of a relay's own socket, which nobody else may look into.

    with socket_folder() as folder:
        ...                 # f"{folder}/zenoh" is the socket

A relay that was killed leaves its folder behind. The next one removes it: nobody listens to its socket any more.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PREFIX: Final = "shoal-relay-"
SOCKET: Final = "zenoh"
LIMIT: Final = 1.0
"""Seconds to wait for a socket's answer."""


@contextlib.contextmanager
def socket_folder() -> Iterator[str]:
    """A new folder, which is removed at the end; those of killed relays of this user are removed now."""
    for folder in Path(tempfile.gettempdir()).glob(f"{PREFIX}*"):
        if is_abandoned(folder):
            shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PREFIX) as made:
        yield made


def is_abandoned(folder: Path) -> bool:
    """Whether a relay of this user had its socket in `folder`, and has ended. One that has none yet may be starting."""
    try:
        if folder.is_symlink() or folder.stat().st_uid != os.getuid():
            return False
        with socket.socket(socket.AF_UNIX) as client:
            client.settimeout(LIMIT)
            client.connect(str(folder / SOCKET))
    except ConnectionRefusedError:
        return True
    except OSError:
        return False
    return False
