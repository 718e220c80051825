"""The folders of relays: those of killed ones are removed, and no others."""

from __future__ import annotations

import socket
import sys
import tempfile
from pathlib import Path

import pytest

from shoal_host.relay.relay import PREFIX, SOCKET, socket_folder

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="needs sockets in files")


def test_the_folders_of_killed_relays_are_removed_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as place:  # a socket's path is short
        monkeypatch.setattr(tempfile, "tempdir", place)
        names = (f"{PREFIX}killed", f"{PREFIX}living", f"{PREFIX}starting", "other")
        killed, living, starting, other = (Path(place, name) for name in names)
        for folder in (killed, living, starting, other):
            folder.mkdir()
        with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as gone:
            server.bind(str(living / SOCKET))
            server.listen()
            gone.bind(str(killed / SOCKET))
            gone.close()
            with socket_folder() as mine:
                assert {folder.name for folder in Path(place).iterdir()} == {
                    *(folder.name for folder in (living, starting, other)),
                    Path(mine).name,
                }
            assert not Path(mine).exists()
