"""Brings data sets into the cache, `~/.cache/shoal/data`, once for each state of their files, and reads rows there.

    folder, info = prepared(spec)
    info.content                    # the hash that all nodes with the same questions and answers have
    Rows(folder)[3].answer

A file is read again when its size or its time of change is another. What comes from the Hub is read once for each
`revision`: to read it again, remove it from the cache.

`rows.bin` has the rows one after the other, `ends.npy` where each ends, `texts.npy` the hashes of the held-out texts in
order, and `info.json` the rest. Only rows that are asked for are in memory. A folder gets its name when all of it is
there.
"""

import errno
import hashlib
import mmap
import os
import shutil
from array import array
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from shoal.config.caches import alone, cache_folder
from shoal.errors import UserError
from shoal.rollout import canonical, hash_of
from shoal.tasks.data.rows import Layout, LongerThanWanted, Row, Unusable, encoded, identified
from shoal.tasks.data.scores import SCORES, kind_of
from shoal.tasks.data.sources import is_place, sides_of, state_of
from shoal.tasks.data.spec import DataSpec

FORMAT: Final = 4
"""Of the cache: what another one wrote is made again."""
ROWS: Final = "rows.bin"
ENDS: Final = "ends.npy"
TEXTS: Final = "texts.npy"
INFO: Final = "info.json"
LONGEST: Final = 8
"""Questions that are known as the longest."""
SEEN: Final = 256
"""Rows that are looked at for the names of columns."""
MOST_SKIPPED: Final = 0.1
"""The share of rows that may be unusable. More of them mean that something else is wrong."""
MOST_COLUMNS: Final = 1000


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
        self._file = (folder / ROWS).open("wb")
        self._ends = array("Q", [0])
        self._texts = array("Q")
        self._asked = array("Q")
        """The bytes of each question."""

    def add(self, row: Row, held_out: bool) -> None:
        """Writes one row. Raises `Unusable` for one that cannot be kept."""
        data = encoded(row)
        self._file.write(data)
        self._ends.append(self._ends[-1] + len(data))
        self._asked.append(sum(len(text.encode()) for _, text in row.turns))
        self._hashes[held_out].update(identified(row))
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
        return sorted(np.argsort(self._asked, kind="stable")[-LONGEST:].tolist())

    def close(self) -> None:
        """Writes what is left, but for `info.json`."""
        self._file.close()
        np.save(self.folder / ENDS, np.array(self._ends))
        np.save(self.folder / TEXTS, np.sort(self._texts))


class Rows:
    """The rows in a folder."""

    def __init__(self, folder: Path) -> None:
        with (folder / ROWS).open("rb") as file:
            self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._ends = np.load(folder / ENDS, mmap_mode="r")
        self._texts = np.load(folder / TEXTS, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __getitem__(self, number: int) -> Row:
        return _decoder.decode(self._rows[int(self._ends[number]) : int(self._ends[number + 1])])

    def holds_out(self, text: str) -> bool:
        """Whether a question on the data's own held-out side has this text."""
        wanted = np.uint64(text_hash(text))
        place = np.searchsorted(self._texts, wanted)
        return bool(place < len(self._texts) and self._texts[place] == wanted)


def text_hash(text: str) -> int:
    """64 bits that tell texts apart."""
    return int.from_bytes(hashlib.blake2b(canonical(text).encode(), digest_size=8).digest(), "big")


def read_info(folder: Path) -> Info | None:
    """What is known of the data set in this folder; None if it is not there, or of another version."""
    try:
        return msgspec.json.decode((folder / INFO).read_bytes(), type=Info)
    except (OSError, msgspec.DecodeError):
        return None


_decoder = msgspec.msgpack.Decoder(Row)


def prepared(spec: DataSpec) -> tuple[Path, Info]:
    """The folder of a data set in the cache, and what is known of it. Raises `UserError`."""
    covered = [FORMAT, spec.subset, spec.revision, spec.split, spec.held_out, spec.prompt, spec.answer, spec.gold]
    covered += [spec.most_characters, "" if spec.score in SCORES else spec.score]
    path = Path(spec.path)
    place = hash_of([str(path.absolute()) if path.exists() else spec.path, covered])[:16]
    try:
        states = [state_of(path) for path in (spec.path, spec.held_out) if path == spec.path or is_place(path)]
        folder = cache_folder("data") / f"{place}-{hash_of(states)[:16]}"
        if info := read_info(folder):
            return folder, info
        folder.parent.mkdir(parents=True, exist_ok=True)
        with alone(folder.parent / f".{place}.lock", f"another process reads {spec.path}: waiting for it"):
            info = read_info(folder)
            if info is None:
                info = _build(spec, folder)
                for old in folder.parent.glob(f"{place}-*"):
                    if old != folder:
                        shutil.rmtree(old, ignore_errors=True)
            return folder, info
    except OSError as error:
        cache = cache_folder("data")
        if error.errno == errno.ENOSPC or str(error.filename or "").startswith(str(cache)):
            said = "no space is left" if error.errno == errno.ENOSPC else error.strerror
            raise UserError(f"cannot write {cache}: {said}; set XDG_CACHE_HOME to a folder of your own") from error
        raise UserError(f"cannot read {spec.path} into {cache}: {error.strerror or error}") from error


def _build(spec: DataSpec, folder: Path) -> Info:
    """Reads a data set into `folder`, which gets its name at the end."""
    room = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(room, ignore_errors=True)  # of a process that was killed
    room.mkdir()
    try:
        info = _read(spec, room)
        (room / INFO).write_bytes(msgspec.json.encode(info))
        shutil.rmtree(folder, ignore_errors=True)  # of another version
        os.replace(room, folder)
        return info
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise


def _read(spec: DataSpec, room: Path) -> Info:
    """Writes the rows that can be used into `room`."""
    from rich.console import Console
    from rich.progress import track

    console = Console(stderr=True)
    train, held_out = sides_of(spec)
    writer, layout = Writer(room), Layout("", "", "")
    columns: dict[str, None] = {}
    kinds: set[str] = set()
    skipped, wrong, first, fault = 0, 0, "", ""
    for side in (train, held_out):
        if side is None:
            continue
        quiet = not console.is_terminal
        rows = track(side.rows(), f"reading {side.name}, once", None, console=console, transient=True, disable=quiet)
        begun = list(islice(rows, SEEN))
        if not layout.prompt:
            layout = _layout(spec, begun, side.name)
        for number, raw in chain(begun, rows):
            try:
                row = layout.row(raw)
                writer.add(row, held_out=side is held_out)
            except Unusable as reason:
                skipped += 1
                said = f"row {number} of {side.name} {reason}"
                first = first or said
                if not isinstance(reason, LongerThanWanted):
                    wrong += 1
                    fault = fault or said
                continue
            if len(columns) < MOST_COLUMNS:
                columns.update(dict.fromkeys(row.columns))
            if row.answer is not None and len(kinds) < 2:
                kinds.add(kind_of(row.answer))
    writer.close()
    rows_kept = sum(writer.counts.values())
    if not rows_kept and not skipped:
        raise UserError(f"{spec.path} has no rows")
    if wrong > MOST_SKIPPED * (rows_kept + skipped):
        raise UserError(f"{wrong:,} of {rows_kept + skipped:,} rows cannot be used: {fault}")
    if not rows_kept:
        raise UserError(f"none of {skipped:,} rows can be used: {first}")
    answer = layout.answer
    return Info(
        train=writer.counts[False],
        held_out=writer.counts[True],
        has_split=held_out is not None,
        content=writer.content,
        columns=sorted(columns | ({answer: None} if answer and "." not in answer else {})),
        answer=answer,
        gold=spec.gold,
        score=layout.score or (kinds.pop() if len(kinds) == 1 else "exact"),
        skipped=skipped,
        first=first,
        longest=writer.longest,
    )


def _layout(spec: DataSpec, rows: list[tuple[int, Any]], name: str) -> Layout:
    """The layout that several rows show together: one of them may lack a column."""
    columns = dict.fromkeys(str(column) for _, raw in rows if isinstance(raw, dict) for column in raw)
    return Layout.of(spec, list(columns), name) if columns else Layout("", "", "")
