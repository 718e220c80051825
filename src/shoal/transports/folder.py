"""A shared folder as a transport: a network drive, or a folder that is kept in step between machines.

    shoal join /mnt/shared --transport folder --swarm lagoon

    /mnt/shared/shoal/lagoon/open/rollouts/<address>/<hash of the content>     one message

A node adds and removes files in the folders of its own address only, and reads all others. Strangers may write there,
too: no link is followed, only ordinary files are read, and each pass reads a bounded number of bounded files. A file
whose name is not the hash of its content is not all there yet, and is read again once it has changed.
"""

import contextlib
import hashlib
import itertools
import os
import random
import re
import secrets
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from shoal.admission.bounded import Recent, RecentKeys
from shoal.config.sections import NetworkConfig
from shoal.errors import UserError
from shoal.transports.base import Channel, Presence, Transport, TransportContext

EVERY: Final = 1.0  # seconds between two passes
KEPT: Final = 64, 900.0
"""Own messages of a channel that stay in the folder, and for how many seconds: nobody admits older ones."""
PEERS: Final = 256
"""Folders of others that one pass looks into, by chance if there are more; and twice as many are remembered."""
LISTED: Final = 1024  # names of a folder that are looked at
FILES: Final = 32  # files of one node that a pass reads: its newest
MAX_PASS: Final = 32 << 20  # bytes that a pass reads
HERE: Final = 900.0  # seconds after its last message for which a node counts as there
_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_RDONLY
_FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY


class FolderTransport(Transport):
    """Raises `UserError` unless `connect` names one folder. The folder may go away and come back."""

    def __init__(self, network: NetworkConfig, context: TransportContext) -> None:
        super().__init__(network, context)
        self.check(network)
        [folder] = network.connect
        self._root = Path(folder)
        self._read: Recent[str, RecentKeys[int]] = Recent(2 * PEERS, lambda: RecentKeys(LISTED))
        """What was read in each folder: hashes of name, time and size."""
        self._heard: Recent[str, list[float]] = Recent(2 * PEERS, list)
        """When the last new message of each node came."""
        self._trouble = self._unsent = ""
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shoal-folder", daemon=True)
        self._thread.start()

    @classmethod
    def check(cls, network: NetworkConfig) -> None:
        if os.open not in os.supports_dir_fd:
            raise UserError("the transport folder is for Linux and macOS")
        if len(network.connect) != 1 or not Path(network.connect[0]).is_dir():
            given = ", ".join(network.connect) or "none"
            raise UserError(f"the transport folder takes one folder that is there, and was given {given}")

    def wait_open(self, timeout: float) -> bool:
        if not self._root.is_dir():
            self._closed.wait(timeout)
        return self._root.is_dir()

    def publish(self, channel: Channel, data: bytes) -> None:
        try:
            self._write(channel, data)
            self._unsent = ""
        except OSError as error:
            self._unsent = f"{self._root} cannot be written: {error.strerror or error}"

    def _write(self, channel: Channel, data: bytes) -> None:
        with self._opened(channel, self.context.address, make=True) as folder:
            temporary, name = f".{secrets.token_hex(8)}", _name_of(data)
            with open(temporary, "xb", opener=lambda path, flags: os.open(path, flags, 0o644, dir_fd=folder)) as file:
                file.write(data)
            os.replace(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
            files = sorted(_files(folder), key=lambda file: -file[1])
            for place, (name, changed, _) in enumerate(files):
                if place >= KEPT[0] or changed < time.time_ns() - KEPT[1] * 1e9:
                    os.unlink(name, dir_fd=folder)

    def presence(self) -> Presence:
        now = time.monotonic()
        there = sorted(address for address, [at] in list(self._heard.items()) if now - at < HERE)
        trouble = self._trouble or self._unsent
        return Presence(len(there), tuple(there), int(not self._trouble), trouble, warning=self._unsent)

    def close(self) -> None:
        self._closed.set()
        self._thread.join(2.0)

    def _run(self) -> None:
        while not self._closed.wait(EVERY):
            try:
                left = self._pass("rollouts", MAX_PASS)
                if self.context.hears_notices:
                    self._pass("notices", left)
                self._trouble = ""
            except OSError as error:
                self._trouble = f"{self._root}: {error.strerror or error}"
            except Exception:
                self.fault("reading the folder")

    def _pass(self, channel: Channel, left: int) -> int:
        """Reads what is new, at most `left` bytes; how many may still be read."""
        if not self._root.is_dir():
            raise OSError("the folder is not there")
        try:
            with self._opened(channel) as folder:
                addresses = [name for name in _listed(folder, r"[0-9a-f]{64}") if name != self.context.address]
        except FileNotFoundError:  # nobody has sent anything
            return left
        for address in random.sample(addresses, min(PEERS, len(addresses))):
            with contextlib.suppress(OSError), self._opened(channel, address) as folder:
                left = self._take(channel, address, folder, left)
        return left

    def _take(self, channel: Channel, address: str, folder: int, left: int) -> int:
        """Delivers the new messages of one node, the oldest first."""
        read = self._read[f"{channel} {address}"]
        new = [file for file in _files(folder) if hash(file) not in read]
        for file in sorted(new, key=lambda file: file[1])[-FILES:]:
            name, _, size = file
            if size > self.context.max_bytes:
                self.dropped["size"] += read.add(hash(file))
            elif size <= left:
                left -= size
                read.add(hash(file))
                data = _content(folder, name, size)
                if data is not None and _name_of(data) == name:
                    self.context.deliver(channel, address, data)
                    self._heard[address][:] = [time.monotonic()]
        return left

    @contextmanager
    def _opened(self, *names: str, make: bool = False) -> Iterator[int]:
        """The folder of a channel, or of a node in it. No part of the way below the shared folder may be a link."""
        folder = os.open(self._root, os.O_RDONLY)
        try:
            for name in (*self.context.prefix.split("/"), *names):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def _name_of(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=16).hexdigest()


def _listed(folder: int, pattern: str) -> list[str]:
    """Names in a folder that fit the pattern, of the first `LISTED`."""
    with os.scandir(folder) as entries:
        return [entry.name for entry in itertools.islice(entries, LISTED) if re.fullmatch(pattern, entry.name)]


def _files(folder: int) -> list[tuple[str, int, int]]:
    """Name, time of change and size of each message in a folder."""
    found = []
    for name in _listed(folder, r"[0-9a-f]{32}"):
        with contextlib.suppress(OSError):  # it has gone
            status = os.stat(name, dir_fd=folder, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode):
                found.append((name, status.st_mtime_ns, status.st_size))
    return found


def _content(folder: int, name: str, size: int) -> bytes | None:
    """What an ordinary file of this size has in it; None if it is no such file any more."""
    try:
        with open(name, "rb", opener=lambda path, flags: os.open(path, _FILE, dir_fd=folder)) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return None
            data = file.read(size + 1)
    except OSError:
        return None
    return data if len(data) == size else None
