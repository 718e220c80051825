"""A place at a URL that fsspec can write to: s3://, hf://datasets/, hf://buckets/, ssh://, memory://.

    store = UrlStore("s3://bucket/folder")

The Hub takes 128 commits an hour for a data set, so a node adds a file every five minutes there, and never two within
half a minute. Object stores put a file whole or not at all; elsewhere it is written under another name and renamed.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, Final, TypeVar

import fsspec
from fsspec.core import url_to_fs

from shoal.errors import UserError, in_brief
from shoal.untrusted import printable

T = TypeVar("T")
WHOLE: Final = {"s3", "s3a", "gs", "gcs", "abfs", "az", "hf", "memory"}
"""What puts a file whole or not at all, and needs no folders."""
TIMES: Final = {"memory": (1.0, 0.0), "hf": (300.0, 30.0)}
"""Seconds between two looks or files, and between two writes at least."""
USUAL: Final = 30.0, 0.0


class UrlStore:
    """A store at a URL (`shoal_extras.places.store.Store`). Nothing is asked of it before the first look."""

    def __init__(self, url: str) -> None:
        """Raises `UserError` for a URL that fsspec cannot use here."""
        scheme = url.partition("://")[0]
        if "::" in url:
            raise UserError(f"{printable(url, 100)}: a place is one URL, without ::")
        try:
            fsspec.get_filesystem_class(scheme)
            self._system, self._root = url_to_fs(url)
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
