"""Reads directories: lists of signed entries, in a file or at a URL.

    listing = read_directories(["https://example.org/swarms.json", "mine.json"], now=time.time())
    listing.entries           # those that hold, with where they stand
    listing.unusable          # the others, with why

A directory is JSON: {"version": 1, "entries": [{"entry": {...}, "signature": "..."}]}. Whoever serves it is a stranger,
too: what is read is bounded in size and time, and one bad entry spoils no other.
"""

import queue
import re
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

import httpx2
import msgspec

from shoal.errors import UserError
from shoal.identity.keys import identity_path
from shoal.invitations.entry import BadEntry, Entry, SignedEntry, open_entry
from shoal.untrusted import UNDECODABLE, printable, read_regular

VERSION: Final = 1
FILE: Final = "directories"
MAX_BYTES: Final = 2**20
"""Of a directory."""
MAX_ENTRIES: Final = 1000
MAX_DIRECTORIES: Final = 16
PATIENCE: Final = 10.0
"""Seconds that a download may take in all."""


@dataclass(frozen=True)
class Listed:
    """An entry that holds."""

    signed: SignedEntry
    source: str
    """The directory that has it."""

    @property
    def entry(self) -> Entry:
        return self.signed.entry


@dataclass(frozen=True)
class Unusable:
    """An entry or a directory that is left out."""

    source: str
    what: str
    """Its name, as far as it has one; "" for a whole directory."""
    why: str


@dataclass
class Listing:
    """What some directories say together."""

    entries: list[Listed] = field(default_factory=list)
    unusable: list[Unusable] = field(default_factory=list)


class _Directory(msgspec.Struct):
    version: int
    entries: list[msgspec.Raw]


class _Named(msgspec.Struct):
    name: str


class _Head(msgspec.Struct):
    entry: _Named


def known_directories() -> list[str]:
    """The directories of this user: a file or URL a line, in `directories` beside the identity. Raises `UserError`."""
    path = identity_path().with_name(FILE)
    if not path.exists():
        return []
    try:
        lines = read_regular(path, MAX_BYTES).decode().splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return [line.strip() for line in lines if line.strip() and not line.strip().startswith("#")]


def is_url(source: str) -> bool:
    """Whether a directory is at a URL, so that others than this user may have written it."""
    return source.lower().startswith(("http://", "https://"))


def read_directories(sources: Sequence[str], now: float) -> Listing:
    """What `sources` have at the time `now`. Of several entries of one host with one name the one that was signed last
    counts. Raises `UserError` if none of them can be read."""
    if len(sources) > MAX_DIRECTORIES:
        raise UserError(f"{len(sources)} directories: at most {MAX_DIRECTORIES} are read; leave some out")

    def read(source: str) -> Listing | UserError:
        try:
            return read_directory(source, now)
        except UserError as error:
            return error

    whole = Listing()
    with ThreadPoolExecutor(MAX_DIRECTORIES) as pool:  # slow ones together
        results = list(pool.map(read, sources))
    errors = [result for result in results if isinstance(result, UserError)]
    if sources and len(errors) == len(sources):
        raise UserError("; ".join(map(str, errors)))
    for source, result in zip(sources, results, strict=True):
        if isinstance(result, UserError):
            whole.unusable.append(Unusable(source, "", str(result)))
        else:
            whole.entries += result.entries
            whole.unusable += result.unusable
    newest: dict[tuple[str, str], Listed] = {}
    for listed in sorted(whole.entries, key=lambda one: one.entry.signed):
        newest[listed.entry.name, listed.entry.key] = listed
    whole.entries = sorted(newest.values(), key=lambda one: (one.entry.name, one.entry.key))
    return whole


def read_directory(source: str, now: float) -> Listing:
    """What one directory has. Raises `UserError` if it cannot be read, or is none."""
    try:
        data = download(source, PATIENCE) if is_url(source) else read_regular(Path(source).expanduser(), MAX_BYTES)
    except OSError as error:
        raise UserError(f"the directory {source} cannot be read: {error.strerror or error}") from error
    except RuntimeError as error:  # there is no such home folder
        raise UserError(f"the directory {source} cannot be read: {error}") from error
    try:
        directory = msgspec.json.decode(data, type=_Directory)
    except UNDECODABLE as error:
        why = printable(str(error), 120)
        raise UserError(f"{source} is no directory of swarms: {why} (`shoal announce` makes one)") from None
    if directory.version != VERSION:
        raise UserError(f"{source} is a directory of version {directory.version}; this shoal reads version {VERSION}")
    found = Listing()
    for number, raw in enumerate(directory.entries[:MAX_ENTRIES], 1):
        try:
            found.entries.append(Listed(open_entry(bytes(raw), now), source))
        except BadEntry as bad:
            found.unusable.append(Unusable(source, _name_in(raw) or f"entry {number}", str(bad)))
    if (more := len(directory.entries) - MAX_ENTRIES) > 0:
        found.unusable.append(Unusable(source, f"{more} more", f"only the first {MAX_ENTRIES} of a directory are read"))
    return found


def directory_of(entries: Sequence[SignedEntry]) -> bytes:
    """The bytes of a directory with these entries, as people can read it."""
    plain = {"version": VERSION, "entries": [msgspec.to_builtins(one) for one in entries]}
    return msgspec.json.format(msgspec.json.encode(plain), indent=2) + b"\n"


def download(url: str, patience: float) -> bytes:
    """What is at `url`: at most `MAX_BYTES`, within `patience` seconds in all, without redirects. Raises `OSError`."""
    box: queue.SimpleQueue[bytes | OSError] = queue.SimpleQueue()

    def fetch() -> None:
        try:
            box.put(_get(url, time.monotonic() + patience))
        except (httpx2.HTTPError, httpx2.InvalidURL, httpx2.StreamError, OSError, ValueError) as error:
            words = re.sub(r"^\[Errno .*?\] ", "", str(error))  # the system's own
            box.put(OSError(printable(words, 200) or type(error).__name__))

    # A thread that a server holds up is left behind: a trickle of headers has no end of its own.
    threading.Thread(target=fetch, daemon=True).start()
    try:
        got = box.get(timeout=patience)
    except queue.Empty:
        raise TimeoutError(f"no whole reply in {patience:g} s") from None
    if isinstance(got, OSError):
        raise got
    return got


def _get(url: str, end: float) -> bytes:
    local = urlsplit(url).hostname in ("localhost", "127.0.0.1", "::1")  # no proxy reaches it
    data = bytearray()
    with (
        httpx2.Client(trust_env=not local, headers={"Accept-Encoding": "identity"}) as client,
        client.stream("GET", url, timeout=max(0.1, end - time.monotonic())) as response,
    ):
        if response.is_redirect:
            raise OSError(f"it leads to {printable(response.headers.get('location', ''), 200)}: give that address")
        if response.status_code != 200:
            raise OSError(f"HTTP {response.status_code}")
        for chunk in response.iter_raw():
            data += chunk
            if len(data) > MAX_BYTES:
                raise OSError(f"it has more than {MAX_BYTES:,} bytes")
            if time.monotonic() > end:
                raise TimeoutError("it takes too long")
    return bytes(data)


def _name_in(raw: msgspec.Raw) -> str:
    try:
        return printable(msgspec.json.decode(raw, type=_Head).entry.name, 32)
    except UNDECODABLE:
        return ""
