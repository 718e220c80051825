"""Where the files of a place are: a folder of this machine, or a URL (s3, hf, ssh, memory and others of fsspec).

    store = open_store("/mnt/shared")
    store.names("shoal/lagoon/open")                 # of folders and files in a folder
    store.write(f"shoal/lagoon/open/{name.path}", data)
    store.read(f"shoal/lagoon/open/{name.path}", MAX_FILE)

Strangers may write there, too: no part of a path below the folder may be a link, and only ordinary files are read.
"""

import contextlib
import errno
import itertools
import os
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar

from shoal.errors import UserError, in_brief
from shoal.transports.base import Channel
from shoal.untrusted import printable
from shoal_extras.places.files import MAX_FILE, BadFile, FileName, unpack

T = TypeVar("T")
WHOLE: Final = {"s3", "s3a", "gs", "gcs", "abfs", "az", "hf", "memory"}
"""What puts a file whole or not at all, and needs no folders."""
TIMES: Final = {"memory": (1.0, 0.0), "hf": (300.0, 30.0)}
"""Seconds between two looks or files, and between two writes at least."""
USUAL: Final = 30.0, 0.0
Store: TypeAlias = "FolderStore | UrlStore"
LISTED: Final = 1_000_000  # names of a folder that are looked at
_FOLDER: Final = getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | os.O_RDONLY
_FILE: Final = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | os.O_RDONLY
_NEW: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)


class FolderStore:
    """A folder that all nodes see: a network drive, or one that is kept in step between machines. The methods raise
    `OSError`; those of a store at a URL wait for a network."""

    every = 3.0
    """Seconds between two looks, and between two files of one node."""
    pause = 0.0
    """Seconds between two writes, at least."""

    def __init__(self, folder: str) -> None:
        """Raises `UserError` unless the folder is there. It may go away and come back."""
        if os.open not in os.supports_dir_fd:
            raise UserError("a folder as a place is for Linux and macOS")
        self._root = Path(folder).expanduser()
        self.name = folder
        if not self._root.is_dir():
            raise UserError(f"there is no folder {folder}: make it first, or name another place")

    def names(self, folder: str) -> Iterator[str]:
        """What is in a folder, in any order; nothing if there is no such folder."""
        if not self._root.is_dir():
            raise OSError(errno.ENOENT, "the folder is not there")
        with contextlib.suppress(FileNotFoundError), self._opened(folder) as handle, os.scandir(handle) as entries:
            yield from (entry.name for entry in itertools.islice(entries, LISTED))

    def stamp(self, folder: str) -> float | None:
        """A number that changes when something is added to the folder; None if that is not known."""
        with contextlib.suppress(OSError), self._opened(folder) as handle:
            return os.fstat(handle).st_mtime_ns
        return 0.0

    def read(self, path: str, most: int) -> bytes:
        """The first `most` bytes of a file, or all of them."""
        folder, _, name = path.rpartition("/")
        with (
            self._opened(folder) as handle,
            open(name, "rb", opener=lambda path, flags: os.open(path, _FILE, dir_fd=handle)) as file,
        ):
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise OSError(errno.EINVAL, "it is not an ordinary file")
            return file.read(most)

    def write(self, path: str, data: bytes) -> None:
        """Adds a file, whole or not at all."""
        folder, _, name = path.rpartition("/")
        with self._opened(folder, make=True) as handle:
            with contextlib.suppress(FileNotFoundError):  # left by a process that was killed
                os.unlink(f".{name}", dir_fd=handle)
            try:
                with open(f".{name}", "xb", opener=lambda path, _: os.open(path, _NEW, 0o644, dir_fd=handle)) as file:
                    file.write(data)
                    file.flush()
                    os.fsync(file.fileno())
                os.replace(f".{name}", name, src_dir_fd=handle, dst_dir_fd=handle)
            except OSError:
                with contextlib.suppress(OSError):
                    os.unlink(f".{name}", dir_fd=handle)
                raise

    def remove(self, path: str) -> None:
        folder, _, name = path.rpartition("/")
        with contextlib.suppress(FileNotFoundError), self._opened(folder) as handle:
            os.unlink(name, dir_fd=handle)

    @contextmanager
    def _opened(self, path: str, make: bool = False) -> Iterator[int]:
        """A folder below the shared one. No part of the way may be a link."""
        folder = os.open(self._root, os.O_RDONLY)
        try:
            for name in path.split("/"):
                if make:
                    with contextlib.suppress(FileExistsError):
                        os.mkdir(name, dir_fd=folder)
                inner = os.open(name, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            yield folder
        finally:
            os.close(folder)


def open_store(word: str) -> Store:
    """The place of this name. Raises `UserError`."""
    return UrlStore(word) if "://" in word else FolderStore(word)


def read_messages(store: Store, prefix: str, file: FileName) -> list[tuple[Channel, bytes]]:
    """The messages of a file below the folder `prefix`, in their order. Raises `OSError` if it is gone or no ordinary
    file, `BadFile` for bytes that no node writes, and `Unfinished` if it is not all there yet."""
    data = store.read(f"{prefix}/{file.path}", MAX_FILE + 1)
    if len(data) > MAX_FILE:
        raise BadFile(f"more than {MAX_FILE} bytes")
    if not file.holds(data):
        raise Unfinished("its content is not the one that its name tells")
    return unpack(data)


def reason(error: OSError) -> str:
    """The cause in a few words."""
    return printable(error.strerror or str(error), 200)


class Unfinished(BadFile):
    """It may still be on its way."""


class UrlStore:
    """A store at a URL that fsspec can write to. Nothing is asked of it before the first look.

    The Hub takes 128 commits an hour for a data set, so a node adds a file every five minutes there, and never two
    within half a minute. Object stores put a file whole or not at all; elsewhere it is renamed when it is written."""

    def __init__(self, url: str) -> None:
        """Raises `UserError` for a URL that fsspec cannot use here."""
        scheme = url.partition("://")[0]
        if "::" in url:
            raise UserError(f"{printable(url, 100)}: a place is one URL, without ::")
        import fsspec  # only now

        try:
            fsspec.get_filesystem_class(scheme)
            self._system, self._root = fsspec.core.url_to_fs(url)
        except ImportError as error:
            how = f"{printable(str(error), 100)} (s3, ssh: pip install 'shoal[places]')"
            raise UserError(f"a place at {scheme}:// needs another package: {how}") from error
        except Exception as error:  # each file system has its own
            raise UserError(f"{printable(url, 100)} is no place: {in_brief(error)}") from error
        self.name = printable(url, 100)
        self._whole = scheme in WHOLE
        self.every, self.pause = TIMES.get(scheme, USUAL)
        self._root = self._root.rstrip("/")

    def names(self, folder: str) -> Iterator[str]:
        path = f"{self._root}/{folder}"
        try:
            self._system.invalidate_cache()
            found = self._asked(self._system.ls, path, detail=False)
        except FileNotFoundError:
            return
        yield from (str(name).rstrip("/").rpartition("/")[2] for name in found)

    def stamp(self, folder: str) -> float | None:
        return None

    def read(self, path: str, most: int) -> bytes:
        data: bytes = self._asked(self._system.cat_file, f"{self._root}/{path}", start=0, end=most)
        return data[:most]

    def write(self, path: str, data: bytes) -> None:
        whole = f"{self._root}/{path}"
        folder, _, name = whole.rpartition("/")
        if self._whole:
            self._asked(self._system.pipe_file, whole, data)
            return
        self._asked(self._system.makedirs, folder, exist_ok=True)
        self._asked(self._system.pipe_file, f"{folder}/.{name}", data)
        self._asked(self._system.mv, f"{folder}/.{name}", whole)

    def remove(self, path: str) -> None:
        with suppress(FileNotFoundError):
            self._asked(self._system.rm_file, f"{self._root}/{path}")

    def _asked(self, work: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The result of `work`. Whatever it raises becomes an `OSError` in one line."""
        try:
            return work(*arguments, **named)
        except FileNotFoundError:
            raise
        except Exception as error:
            raise OSError(printable(in_brief(error), 200)) from error
