"""Brings data sets into the cache, `~/.cache/shoal/data`, once for each state of their files, and reads rows there.

    folder, info = prepared(spec)
    info.content                    # the hash that all nodes with the same questions and answers have
    Rows(folder)[3].answer

A file is read again when its size or its time of change is another, a data set of the Hub once for each `revision`.
`rows.bin` has the rows, `places.npy` where each begins and ends, `texts.npy` the hashes of the held-out texts in order,
`info.json` the rest. Only rows that are asked for are in memory. A folder gets its name when all of it is there.
"""

import errno
import hashlib
import mmap
import os
import re
import shutil
import struct
from collections import Counter
from collections.abc import Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from shoal.answers import SCORES, SCORES_VERSION, fits, kind_of
from shoal.config.caches import alone, cache_folder
from shoal.errors import UserError
from shoal.rollout import canonical, hash_of
from shoal.tasks.data.files import MOST_COLUMNS as LONGEST_HEADER
from shoal.tasks.data.forms import field, form_of
from shoal.tasks.data.rows import Row, Unusable, encoded, has_steps, identified, row_of, stable
from shoal.tasks.data.sources import is_place, sides_of, state_of
from shoal.tasks.data.spec import DataSpec
from shoal.untrusted import printable

FORMAT: Final = 8
"""Of the cache: what another one wrote is made again."""
ROWS: Final = "rows.bin"
PLACES: Final = "places.npy"
TEXTS: Final = "texts.npy"
INFO: Final = "info.json"
SEEN: Final = 256
"""Rows that are looked at for the names of columns."""
MOST_SKIPPED: Final = 0.1
"""The share of rows that may be unusable. More of them mean that something else is wrong."""
MOST_COLUMNS: Final = 1000
MOST_ALIKE: Final = 0.9
"""The share of right answers of one kind from which the others are odd."""
UNIT: Final = "number with a unit"
SHOWN: Final = 3
"""Odd rows, and rows that contradict each other, that are named."""


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
    form: str
    """Which columns are what, for people."""
    how: str
    """How its file is written, if that is unusual."""
    score: str
    """The kind of scoring that fits most right answers, or that these columns ask for."""
    comma: bool
    """Whether a comma stands before decimals."""
    odd: list[str]
    """Rows whose right answer is not of the kind asked for, or of another one than most: the first ones."""
    odd_count: int
    duplicates: int
    """Rows that ask the same as an earlier row and have the same right answer."""
    conflicts: list[str]
    """Rows that ask the same and have different right answers: the first ones, for people."""
    conflict_count: int
    skipped: int
    """Rows that could not be used, and those left out since they contradict another one."""
    first: str
    """Why, of the first of them."""
    has_steps: bool
    """Whether right answers stand behind their steps."""


_ENTRY: Final = struct.Struct("<QIQQQI16s")
_NAMES: Final = ("begin", "length", "asked", "text", "right", "number", "digest")
_ENTRIES: Final = np.dtype(list(zip(_NAMES, "<u8 <u4 <u8 <u8 <u8 <u4 V16".split(), strict=True)))
"""Of each row while a data set is read: its place in the file of rows, hashes of its turns, of its text and of its
right answers, its number in its file, and what the content hash covers."""


class Writer:
    """Writes rows into a folder. Those that are held out come last."""

    def __init__(self, folder: Path, merge: bool = False) -> None:
        """`merge`: rows that ask the same become one, of which all their right answers are right."""
        self.folder = folder
        self.merge = merge
        self.counts = {False: 0, True: 0}
        self.content = ""
        self.duplicates = 0
        self.conflicts: list[str] = []
        self.conflict_count = 0
        self._rows = (folder / ROWS).open("wb+")
        self._entries = {side: (folder / f"{side}.part").open("wb+") for side in (False, True)}
        self._end = 0

    def add(self, row: Row, held_out: bool, number: int = 0) -> None:
        """Writes one row. Raises `Unusable` for one that cannot be kept."""
        data = encoded(row)
        self._rows.write(data)
        hashes = text_hash(repr(row.turns)), text_hash(row.text), text_hash(repr(sorted(map(stable, row.right))))
        digest = hashlib.blake2b(identified(row), digest_size=16).digest()
        self._entries[held_out].write(_ENTRY.pack(self._end, len(data), *hashes, number, digest))
        self._end += len(data)
        self.counts[held_out] += 1

    def close(self) -> None:
        """Leaves out rows that contradict each other, or merges them, and writes what is left, but for `info.json`."""
        self._rows.flush()
        kept = []
        for side, file in self._entries.items():
            file.flush()
            entries = np.memmap(file, _ENTRIES, "r+") if self.counts[side] else np.zeros(0, _ENTRIES)
            kept.append(entries[self._consistent(entries)])
            self.counts[side] = len(kept[-1])
            file.close()
            Path(file.name).unlink()
        digests = (hashlib.blake2b(side["digest"].tobytes(), digest_size=16).digest() for side in kept)
        self.content = hashlib.blake2b(b"".join(digests), digest_size=16).hexdigest()
        rows = np.concatenate(kept)
        self._rows.close()
        np.save(self.folder / PLACES, np.stack([rows["begin"], rows["begin"] + rows["length"]], axis=1))
        np.save(self.folder / TEXTS, np.sort(kept[1]["text"]))

    def _consistent(self, entries: Any) -> Any:
        """Which rows of a side are kept."""
        keep = np.ones(len(entries), dtype=bool)
        order = np.argsort(entries["asked"], kind="stable")
        asked = entries["asked"][order]
        begins = np.flatnonzero(np.concatenate([[True], asked[1:] != asked[:-1]])) if len(order) else np.zeros(0, int)
        sizes = np.diff(np.append(begins, len(order)))
        for place in np.flatnonzero(sizes > 1):
            alike = np.sort(order[begins[place] : begins[place] + sizes[place]])
            rights = len(np.unique(entries["right"][alike]))
            self.duplicates += len(alike) - rights
            if rights > 1:
                self.conflict_count += len(alike)
                if len(self.conflicts) < SHOWN:
                    numbers = ", ".join(map(str, entries["number"][alike][:SHOWN]))
                    self.conflicts.append(f"rows {numbers} ask the same and have different right answers")
                keep[alike[1:] if self.merge else alike] = False
                if self.merge:
                    self._merge(entries, alike)
        return keep

    def _merge(self, entries: Any, alike: Any) -> None:
        """Writes one row with the right answers of all, in place of the first."""
        rows = []
        for entry in entries[alike]:
            self._rows.seek(int(entry["begin"]))
            rows.append(_decoder.decode(self._rows.read(int(entry["length"]))))
        row = msgspec.structs.replace(rows[0], answer=list(dict.fromkeys(one for each in rows for one in each.right)))
        data = encoded(row)
        self._rows.seek(self._end)
        self._rows.write(data)
        first = alike[0]
        entries["begin"][first], entries["length"][first] = self._end, len(data)
        entries["digest"][first] = np.void(hashlib.blake2b(identified(row), digest_size=16).digest())
        self._end += len(data)


class Rows:
    """The rows in a folder."""

    def __init__(self, folder: Path) -> None:
        with (folder / ROWS).open("rb") as file:
            self._rows = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._places = np.load(folder / PLACES, mmap_mode="r")
        self._texts = np.load(folder / TEXTS, mmap_mode="r")

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, number: int) -> Row:
        begin, end = map(int, self._places[number])
        return _decoder.decode(self._rows[begin:end])

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
    covered = [FORMAT, SCORES_VERSION, *msgspec.structs.astuple(msgspec.structs.replace(spec, path="", name=""))]
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
    writer, form, comma, steps = Writer(room, spec.conflicts == "both_right"), None, False, False
    columns: dict[str, None] = {}
    kinds: Counter[str] = Counter()
    odd: dict[str, list[str]] = {}
    skipped, first = 0, ""
    for side in (train, held_out):
        if side is None:
            continue
        quiet = not console.is_terminal
        rows = track(side.rows(), f"reading {side.name}, once", None, console=console, transient=True, disable=quiet)
        begun = list(islice(rows, SEEN))
        if form is None:
            seen = [raw for _, raw in begun if isinstance(raw, dict)]
            names = dict.fromkeys(str(column) for raw in seen for column in raw)  # one row may lack a column
            if len(names) > LONGEST_HEADER:
                raise UserError(f"{spec.path} has more than {LONGEST_HEADER:,} columns")
            form = form_of(spec, list(names), seen, side.name) if names else None
            if form is not None:
                right = [one for one in (field(raw, form.answer) for raw in seen) if isinstance(one, str)]
                comma = spec.decimal == "comma" or (spec.decimal == "auto" and _has_comma(side.separator, right))
                steps = spec.gold != "auto" or any(map(has_steps, right))
        for number, raw in chain(begun, rows):
            try:
                if form is None:
                    raise raw if isinstance(raw, Unusable) else Unusable("is not an object with columns")
                row = row_of(raw, form, spec.gold)
                writer.add(row, side is held_out, number)
            except Unusable as reason:
                skipped += 1
                said = f"{side.place(number)} {reason}"
                first = first or said
                if skipped > SEEN and skipped > sum(writer.counts.values()):  # more would only take longer
                    raise UserError(f"most rows cannot be used: {first}") from None
                continue
            if len(columns) < MOST_COLUMNS:
                columns.update(dict.fromkeys(row.columns))
            if row.right:
                given = spec.score in SCORES and fits(spec.score, row.right[0], comma)
                kind = spec.score if given else kind_of(row.right[0], comma)
                if kind == "number" and not given and re.search(r"[a-z]$", row.right[0]):
                    kind = UNIT
                kinds[kind] += 1
                if len(odd.setdefault(kind, [])) < SHOWN:
                    odd[kind].append(f"{side.place(number)}: {printable(row.right[0], 40)!r}")
    read = sum(writer.counts.values())
    if not read and not skipped:
        raise UserError(f"{spec.path} has no rows")
    if skipped > MOST_SKIPPED * (read + skipped):
        raise UserError(f"{skipped:,} of {read + skipped:,} rows cannot be used: {first}")
    writer.close()
    if writer.conflict_count and spec.conflicts == "leave_out":
        skipped += writer.conflict_count
        first = first or writer.conflicts[0]
    if not sum(writer.counts.values()):
        raise UserError(f"none of {read + skipped:,} rows can be used: {first}")
    assert form is not None
    given = spec.score in SCORES
    main = spec.score if given else kinds.most_common(1)[0][0] if kinds else "text"
    alike = given or kinds[main] >= MOST_ALIKE * kinds.total()
    few = {kind: count for kind, count in kinds.items() if alike and kind != main}
    return Info(
        train=writer.counts[False],
        held_out=writer.counts[True],
        has_split=held_out is not None,
        content=writer.content,
        columns=sorted(columns | ({form.answer: None} if form.answer and "." not in form.answer else {})),
        answer=form.answer,
        form=form.says,
        how=next((side.how for side in (train, held_out) if side and side.how), ""),
        score=form.kind or ("number" if main == UNIT else main),
        comma=comma,
        odd=[] if form.kind else [one for kind in few for one in odd[kind]][:SHOWN],
        odd_count=0 if form.kind else sum(few.values()),
        duplicates=writer.duplicates,
        conflicts=writer.conflicts,
        conflict_count=writer.conflict_count,
        skipped=skipped,
        first=first,
        has_steps=steps,
    )


def _has_comma(separator: str, right: Sequence[str]) -> bool:
    """Whether right answers have a decimal comma, and none a decimal point: 2,5 behind a tab; behind `;` also 2,500."""
    points = any(re.fullmatch(r"-?\d+\.\d{1,2}", one.strip()) for one in right)
    comma = {";": r"-?[€$£]?\s?[\d.]+,\d+\s?[€$£]?", "\t": r"-?\d+,(\d\d?|\d{4,})"}.get(separator)
    return not points and comma is not None and any(re.fullmatch(comma, one.strip()) for one in right)
