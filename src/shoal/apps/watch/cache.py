"""The last completions of a run in the memory of its reader, small-lettered: text is searched some times faster there
than in compressed files. What does not fit is searched in its files."""

from __future__ import annotations

import contextlib
import threading

from shoal.apps.watch.tables import BusyError, Tables, parquet
from shoal.runs.tables import ROLLOUTS

TEXT = 256 << 20
"""Bytes of text that are kept."""
COLUMNS = 'part, row, round, node, task, seed, "index", finish_reason, reward, live'


class Cache:
    """The table `cached`, of whole parts, filled by a thread from the newest part on.

    Only closed parts go in: the newest may still grow, and is read from its file.
    """

    def __init__(self, tables: Tables, limit: int = TEXT) -> None:
        self._tables = tables
        self._limit = limit
        self._lock = threading.Lock()
        self._held: dict[int, tuple[tuple[int, int, int], int]] = {}
        self._thread: threading.Thread | None = None
        self._life = 0

    def held(self) -> set[int]:
        """Parts whose rows are in `cached`, as they are on the disk now."""
        marks = {mark[0]: mark for mark in self._tables.mark(ROLLOUTS)}
        with self._lock:
            if self._life != self._tables.lives:
                return set()
            return {part for part, (mark, _) in self._held.items() if marks.get(part) == mark}

    def warm(self) -> None:
        """Have a thread see to it, unless one does."""
        with self._lock:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._fill, name="shoal-window-cache", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Until the thread is done."""
        if self._thread is not None:
            self._thread.join()

    def _fill(self) -> None:
        with contextlib.suppress(BusyError):
            self._tables.rows(
                "CREATE TABLE IF NOT EXISTS cached (part BIGINT, row BIGINT, round BIGINT, node VARCHAR, "
                'task VARCHAR, seed BIGINT, "index" BIGINT, finish_reason VARCHAR, reward DOUBLE, live BOOLEAN, '
                "asked VARCHAR, said VARCHAR)"
            )
            with self._lock:
                if self._life != self._tables.lives:  # another reader, whose table is empty
                    self._life = self._tables.lives
                    self._held.clear()
            good = self._tables.parts(ROLLOUTS)
            marks = {mark[0]: mark for mark in self._tables.mark(ROLLOUTS) if mark[0] in good}
            closed = sorted(marks, reverse=True)[1:]
            self._drop({part for part in self._held if part not in closed or self._held[part][0] != marks[part]})
            room = self._limit
            for part in closed:
                fits = part in self._held or self._load(part, marks[part], room)
                room -= self._held[part][1] if fits else 0
                if room < 0 or not fits:
                    self._drop({other for other in self._held if other <= part})
                    return

    def _load(self, part: int, mark: tuple[int, int, int], room: int) -> bool:
        """Whether there was room. Text is counted before it is taken: a small file can hold much of it."""
        file = parquet([self._tables.parts(ROLLOUTS)[part]])
        size = self._tables.rows(
            f"SELECT coalesce(sum(strlen(question) + strlen(completion)), 0)::DOUBLE AS size FROM {file}"
        )[0]["size"]
        if size > room:
            return False
        texts = "lower(question) AS asked, lower(completion) AS said"
        self._tables.rows(f"INSERT INTO cached SELECT {COLUMNS}, {texts} FROM {file}")
        with self._lock:
            self._held[part] = (mark, int(size))
        return True

    def _drop(self, parts: set[int]) -> None:
        for part in parts:
            with self._lock:
                del self._held[part]
            self._tables.rows("DELETE FROM cached WHERE part = $part", {"part": part})
