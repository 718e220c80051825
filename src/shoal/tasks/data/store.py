"""Brings data sets into the cache, `~/.cache/shoal/data`, once for each state of their files, and reads rows there.

    folder, info = prepared(spec)
    info.content                    # the hash that all nodes with the same questions and answers have
    Rows(folder)[3].answer

A file is read again when its size or its time of change is another. What comes from the Hub is read once for each
`revision`: to read it again, remove it from the cache.

`rows.bin` has the rows one after the other, `rows.idx` where each begins, `texts.idx` the hashes of the held-out texts
in order, and `info.json` the rest. Only rows that are asked for are in memory. A folder gets its name when all of it is
there.
"""

import bisect
import errno
import hashlib
import heapq
import mmap
import os
import shutil
import struct
import sys
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec

from shoal.config.caches import alone, cache_folder
from shoal.errors import UserError
from shoal.rollout import canonical, hash_of
from shoal.tasks.data.rows import Layout, LongerThanWanted, Row, Unusable, encoded, identified
from shoal.tasks.data.scores import SCORES, kind_of
from shoal.tasks.data.sources import Block, Side, is_place, sides_of, state_of
from shoal.tasks.data.spec import DataSpec

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


FORMAT: Final = 3
"""Of the cache: what another one wrote is made again."""
MOST_SKIPPED: Final = 0.1
"""The share of rows that may be unusable. More of them mean that something else is wrong."""
MOST_COLUMNS: Final = 1000
PATIENCE: Final = 1.0
"""Seconds until progress is shown."""

OnRows = Callable[[str, float, int], None]
"""Hears the name of what is read, the share of it that is read, and the rows so far."""


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
        if error.errno == errno.ENOSPC:
            raise UserError(
                f"no space is left for {spec.path} in {cache_folder('data')}: free some, or set XDG_CACHE_HOME to a "
                "folder with more"
            ) from error
        if str(error.filename or "").startswith(str(cache_folder("data"))):
            raise UserError(
                f"cannot write {cache_folder('data')}: {error.strerror}; set XDG_CACHE_HOME to a folder of your own"
            ) from error
        raise UserError(f"cannot read {spec.path} into {cache_folder('data')}: {error.strerror or error}") from error


def _build(spec: DataSpec, folder: Path) -> Info:
    """Reads a data set into `folder`, which gets its name at the end."""
    room = folder.with_name(f".{folder.name}.part")
    shutil.rmtree(room, ignore_errors=True)  # of a process that was killed
    room.mkdir()
    try:
        parts = sides_of(spec)
        with _progress() as on_rows:
            info = _read(spec, {False: parts.train, True: parts.held_out}, room, on_rows)
        (room / INFO).write_bytes(msgspec.json.encode(info))
        shutil.rmtree(folder, ignore_errors=True)  # of another version
        os.replace(room, folder)
        return info
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise


def _read(spec: DataSpec, sides: dict[bool, Side | None], room: Path, on_rows: OnRows) -> Info:
    writer, layout = Writer(room), None
    columns: dict[str, None] = {}
    kinds: set[str] = set()
    skipped, wrong, first, fault = 0, 0, "", ""
    try:
        for held_out, part in sides.items():
            if part is None:
                continue
            for block in part.blocks():
                layout = layout or _layout(spec, block, part.name)
                for number, raw in block.rows:
                    try:
                        row = (layout or Layout("", "", "")).row(raw)
                        writer.add(row, held_out)
                        _note(row, columns, kinds)
                    except Unusable as reason:
                        skipped += 1
                        said = f"row {number} of {part.name} {reason}"
                        first = first or said
                        if not isinstance(reason, LongerThanWanted):
                            wrong += 1
                            fault = fault or said
                on_rows(part.name, block.share, sum(writer.counts.values()))
        writer.close()
    finally:
        writer.abandon()
    rows = sum(writer.counts.values())
    if not rows and not skipped:
        raise UserError(f"{spec.path} has no rows")
    if wrong > MOST_SKIPPED * (rows + skipped):
        raise UserError(f"{wrong:,} of {rows + skipped:,} rows cannot be used: {fault}")
    if not rows:
        raise UserError(f"none of {skipped:,} rows can be used: {first}")
    assert layout is not None
    answer = layout.answer
    return Info(
        train=writer.counts[False],
        held_out=writer.counts[True],
        has_split=sides[True] is not None,
        content=writer.content,
        columns=sorted(columns | ({answer: None} if answer and "." not in answer else {})),
        answer=answer,
        gold=spec.gold,
        score=layout.score or (kinds.pop() if len(kinds) == 1 else "exact"),
        skipped=skipped,
        first=first,
        longest=writer.longest,
    )


def _layout(spec: DataSpec, block: Block, name: str) -> Layout | None:
    """The layout that the rows of a block show together: one of them may lack a column. None without readable rows."""
    columns = dict.fromkeys(str(column) for _, raw in block.rows if isinstance(raw, dict) for column in raw)
    return Layout.of(spec, list(columns), name) if columns else None


def _note(row: Row, columns: dict[str, None], kinds: set[str]) -> None:
    """What all rows have in common."""
    if len(columns) < MOST_COLUMNS:
        columns.update(dict.fromkeys(row.columns))
    if row.answer is not None and len(kinds) < 2:
        kinds.add(kind_of(row.answer))


@contextmanager
def _progress() -> Iterator[OnRows]:
    """Shows on standard error how far a long reading is."""
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    begun = time.monotonic()
    console = Console(stderr=True)
    text = TextColumn("{task.description}", markup=False)
    bar = Progress(text, BarColumn(), TaskProgressColumn(), TimeRemainingColumn(), console=console, transient=True)
    line = bar.add_task("", total=1.0)
    shown, said = False, begun

    def on_rows(name: str, share: float, rows: int) -> None:
        nonlocal shown, said
        now = time.monotonic()
        if not shown and now - begun > PATIENCE and console.is_terminal:
            bar.start()
            shown = True
        if shown:
            bar.update(line, completed=share, description=f"reading {name}, once: {rows:,} rows")
        elif now - said > 10:  # a log, not a terminal
            said = now
            print(f"reading {name}, once: {rows:,} rows, {share:.0%}", file=sys.stderr, flush=True)

    try:
        yield on_rows
    finally:
        if shown:
            bar.stop()
