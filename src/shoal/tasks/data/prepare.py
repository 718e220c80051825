"""Brings data sets into the cache, `~/.cache/shoal/data`, once for each state of their files.

    folder, info = prepared(spec)
    info.content                    # the hash that all nodes with the same questions and answers have

A file is read again when its size or its time of change is another. What comes from the Hub is read once for each
`revision`: to read it again, remove it from the cache.
"""

from __future__ import annotations

import errno
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import msgspec

from shoal.config.caches import alone, cache_folder
from shoal.errors import UserError
from shoal.rollout import hash_of
from shoal.tasks.data.rows import Layout, LongerThanWanted, Row, Unusable
from shoal.tasks.data.scores import SCORES, kind_of
from shoal.tasks.data.sources import Block, Part, is_place, parts_of, state_of
from shoal.tasks.data.spec import DataSpec
from shoal.tasks.data.store import INFO, Info, Writer, read_info

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
        parts = parts_of(spec)
        with _progress() as on_rows:
            info = _read(spec, {False: parts.train, True: parts.held_out}, room, on_rows)
        (room / INFO).write_bytes(msgspec.json.encode(info))
        shutil.rmtree(folder, ignore_errors=True)  # of another version
        os.replace(room, folder)
        return info
    except BaseException:
        shutil.rmtree(room, ignore_errors=True)
        raise


def _read(spec: DataSpec, sides: dict[bool, Part | None], room: Path, on_rows: OnRows) -> Info:
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
