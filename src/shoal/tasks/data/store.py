"""The rows of a data set in the cache, of which only those that are asked for are in memory.

    writer = Writer(folder)
    writer.add(row, held_out=False)
    writer.close()
    rows = Rows(folder)
    rows[3].answer

`rows.bin` has the rows one after the other, `rows.idx` where each begins, `texts.idx` the hashes of the held-out texts
in order, and `info.json` the rest. A folder gets its name when all of it is there.
"""

from __future__ import annotations

import bisect
import hashlib
import heapq
import mmap
import struct
from array import array
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from shoal.rollout import canonical
from shoal.tasks.data.rows import Row, encoded, identified

ROWS: Final = "rows.bin"
PLACES: Final = "rows.idx"
TEXTS: Final = "texts.idx"
INFO: Final = "info.json"
LONGEST: Final = 8
"""Questions that are known as the longest."""
_PAIR: Final = struct.Struct("=QQ")


class Info(msgspec.Struct, frozen=True):
    """What is known of a data set."""

    train: int
    """Rows that are trained on; of all sides where a hash decides."""
    held_out: int
    """Rows of the data's own held-out side."""
    has_split: bool
    """Whether the data says what is held out."""
    content: str
    """The hash of all questions and right answers, in order, on both sides."""
    columns: list[str]
    """The columns that reward functions get."""
    answer: str
    """The column of right answers; empty if there are none."""
    gold: str
    """Where in that column they stand."""
    score: str
    """What `auto` means for these answers."""
    skipped: int
    """Rows that could not be used."""
    first: str
    """Why, of the first of them."""
    longest: list[int]
    """The numbers of the longest questions."""


class Writer:
    """Writes rows into a folder. Those that are held out come last."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.counts = {False: 0, True: 0}
        self._hashes = {side: hashlib.blake2b(digest_size=16) for side in self.counts}
        self._texts = array("Q")
        self._longest: list[tuple[int, int]] = []
        """The bytes and the number of each of the longest questions, as a heap."""
        self._place = 0
        self._rows: BinaryIO = (folder / ROWS).open("wb")
        self._places: BinaryIO = (folder / PLACES).open("wb")
        self._places.write((0).to_bytes(8, _ORDER))

    def add(self, row: Row, held_out: bool) -> None:
        """Writes one row. Raises `Unusable` for one that cannot be kept."""
        data = encoded(row)
        self._rows.write(data)
        self._place += len(data)
        self._places.write(self._place.to_bytes(8, _ORDER))
        self._hashes[held_out].update(identified(row))
        size = sum(len(text.encode()) for _, text in row.turns)
        heapq.heappush(self._longest, (size, sum(self.counts.values())))
        if len(self._longest) > LONGEST:
            heapq.heappop(self._longest)
        self.counts[held_out] += 1
        if held_out:
            self._texts.append(text_hash(row.text))

    @property
    def content(self) -> str:
        """The hash of what was added so far."""
        sides = b"".join(self._hashes[side].digest() for side in (False, True))
        return hashlib.blake2b(sides, digest_size=16).hexdigest()

    @property
    def longest(self) -> list[int]:
        """The numbers of the longest questions that were added so far."""
        return sorted(number for _, number in self._longest)

    def close(self) -> None:
        """Writes what is left, but for `info.json`."""
        (self.folder / TEXTS).write_bytes(array("Q", sorted(self._texts)).tobytes())
        self.abandon()

    def abandon(self) -> None:
        """Closes the files, whatever is in them."""
        for file in (self._rows, self._places):
            file.close()


class Rows:
    """The rows in a folder."""

    def __init__(self, folder: Path) -> None:
        self._rows = _mapped(folder / ROWS)
        self._places = _mapped(folder / PLACES)
        self._texts = memoryview(_mapped(folder / TEXTS)).cast("Q")

    def __len__(self) -> int:
        return len(self._places) // 8 - 1

    def __getitem__(self, number: int) -> Row:
        start, end = _PAIR.unpack_from(self._places, 8 * number)
        return _decoder.decode(self._rows[start:end])

    def holds_out(self, text: str) -> bool:
        """Whether a question on the data's own held-out side has this text."""
        wanted = text_hash(text)
        place = bisect.bisect_left(self._texts, wanted)
        return place < len(self._texts) and self._texts[place] == wanted


def text_hash(text: str) -> int:
    """64 bits that tell texts apart."""
    return int.from_bytes(hashlib.blake2b(canonical(text).encode(), digest_size=8).digest(), "big")


def read_info(folder: Path) -> Info | None:
    """What is known of the data set in this folder; None if it is not there, or of another version."""
    try:
        return msgspec.json.decode((folder / INFO).read_bytes(), type=Info)
    except (OSError, msgspec.DecodeError):
        return None


def _mapped(path: Path) -> Any:
    """The bytes of a file, of which the system reads what is asked for."""
    with path.open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) if path.stat().st_size else b""


_ORDER: Final = "little" if struct.pack("=H", 1) == b"\1\0" else "big"
_decoder = msgspec.msgpack.Decoder(Row)
