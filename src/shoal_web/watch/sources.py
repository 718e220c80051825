"""All sources of a page: given ones, and the runs in folders. A folder such as `runs/` or a study has many runs."""

import itertools
import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from shoal.errors import UserError
from shoal.runs.folder import CHECKPOINTS, CONFIG, METRICS, STATUS
from shoal.untrusted import printable
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.source import NAME, MissingError, Source, changed

DEPTH, RUNS, LOOKED = 6, 500, 20_000
"""Of a search for runs: how deep it goes, how many runs it takes, and how many entries of folders it looks at."""
LOOK = 1.0  # seconds between two looks at the sources, at least
SEARCH = 5.0  # seconds between two searches
OPENED = 16  # runs whose figures are kept in memory: those opened last


class Sources:
    """The `given` sources, and the runs in `folders`, also those that come later. Close it."""

    def __init__(self, given: Sequence[Source] = (), folders: Sequence[Path] = ()) -> None:
        self._given, self._folders = list(given), list(folders)
        self._lock = threading.Lock()
        self._runs: dict[Path, FolderSource] = {}
        self._next = self._looked = 0.0
        self._looking = threading.Lock()
        self._search()

    def all(self) -> list[Source]:
        """The given ones, then runs, the one with the newest metrics first."""
        with self._lock:
            runs = list(self._runs.values())
        runs.sort(key=lambda run: (-round(changed(run.path / METRICS) / 60), run.title))
        return [*self._given, *runs]

    def get(self, id: str) -> Source:
        """Raises `MissingError`."""
        with self._lock:
            for source in (*self._given, *self._runs.values()):
                if source.id == id:
                    return source
        raise MissingError("there is no such run")

    def look(self) -> None:
        """Has sources look for something new, those of the runs that were opened; searches for other runs. At most once
        a second; does nothing while it is at it."""
        if time.monotonic() < self._looked + LOOK or not self._looking.acquire(blocking=False):
            return
        try:
            with suppress(OSError):
                self._look()
        finally:
            self._looked = time.monotonic()
            self._looking.release()

    def _look(self) -> None:
        if time.monotonic() >= self._next:
            self._search()
        with self._lock:
            opened = sorted((run for run in self._runs.values() if run.opened), key=lambda run: -run.opened)
        for run in opened[OPENED:]:
            run.close()
        for source in (*self._given, *opened[:OPENED]):
            source.look()

    def close(self) -> None:
        with self._lock:
            for source in (*self._given, *self._runs.values()):
                source.close()

    def _search(self) -> None:
        began = time.monotonic()
        found = dict(itertools.islice((run for folder in self._folders for run in runs_in(folder)), RUNS))
        with self._lock:
            gone = [self._runs.pop(run) for run in list(self._runs) if run not in found]
            for run, title in found.items():
                if run not in self._runs:
                    self._runs[run] = FolderSource(run, title)
        for source in gone:
            source.close()
        spent = time.monotonic() - began
        self._next = began + max(SEARCH, 20 * spent)  # at most a twentieth of the time, however many there are


def checked_folders(paths: Sequence[Path]) -> list[Path]:
    """`paths`; without any, the newest run under `runs/`. Raises `UserError`."""
    for path in paths:
        if not path.is_dir():
            raise UserError(f"{path} is not a folder")
    if paths:
        return list(paths)
    found = [path for path in Path("runs").glob("*") if is_run(path)]
    if not found:
        raise UserError("there is no run in runs/: make one with `shoal run`, or name the folder of a run")
    return [max(found, key=lambda path: changed(path / METRICS) or changed(path / CONFIG))]


def is_run(path: Path) -> bool:
    return any(os.path.lexists(path / name) for name in (METRICS, CONFIG, STATUS))


def runs_in(path: Path) -> Iterator[tuple[Path, str]]:
    """Runs in `path` and their titles: the folder's own name, or the way to them. The least deep come first, so that a
    folder full of folders hides none beside it. No link is followed."""
    if is_run(path):
        yield path, _printable(path.resolve().name)
        return
    level, looked = [path], 0
    for _ in range(DEPTH):
        below: list[Path] = []
        for folder in level:
            with suppress(OSError), os.scandir(folder) as entries:
                rest = sorted(itertools.islice(entries, max(0, LOOKED - looked)), key=lambda entry: entry.name)
                looked += len(rest)
                below += [folder / entry.name for entry in rest if _may_have_runs(entry)]
        level = [folder for folder in below if not is_run(folder)]
        runs = sorted(set(below).difference(level), key=lambda run: -changed(run / METRICS))
        yield from ((run, _printable(str(run.relative_to(path)))) for run in runs)


def _may_have_runs(entry: os.DirEntry[str]) -> bool:
    try:
        is_folder = entry.is_dir(follow_symlinks=False)
    except OSError:
        return False
    return is_folder and entry.name != CHECKPOINTS and not entry.name.startswith(".")


def _printable(name: str) -> str:
    """A file's name, which can be any bytes, as text for a terminal and JSON."""
    return printable(os.fsencode(name).decode(errors="replace")[-NAME:])
