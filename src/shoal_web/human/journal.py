"""A contributor's questions, answers, scores, and who learned from them: one SQLite file.

    with closing(Journal(folder / "lagoon.sqlite")) as journal:
        journal.offer(Entry(journal.last() + 1, "gcd", question))     # on disk before anybody sees the question
        journal.settle(round, ["6"], [1.0])

A question of a swarm is bound to its round; nodes drop a second message with the same one as a replay. So no round is
given twice: a question is on disk before it is shown, and a new journal starts at the seconds since 1970, in case an
earlier one of the same identity was lost.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec
from msgspec.structs import replace

from shoal.errors import UserError
from shoal.rollout import Question

MOST_LEARNERS: Final = 64  # nodes that are kept of each answer, the first
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS entries (round INTEGER PRIMARY KEY, state TEXT, hash TEXT, entry TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS entries_by_state ON entries (state);
CREATE INDEX IF NOT EXISTS entries_by_hash ON entries (hash);
"""
TOTALS: Final = """
SELECT COUNT(*), COALESCE(SUM((SELECT AVG(value) FROM json_each(entry, '$.rewards'))), 0),
    COALESCE(SUM(json_array_length(entry, '$.learners')), 0),
    (SELECT COUNT(DISTINCT json_extract(value, '$.node')) FROM entries, json_each(entry, '$.learners'))
FROM entries WHERE state = 'answered'"""


class Learner(msgspec.Struct, frozen=True):
    """A node says that it learned from an answer."""

    node: str
    """Its key, in hex."""
    name: str
    at: int
    """The node's own round, the first that it tells."""
    time: float
    """When it was heard, in seconds since 1970."""


class Entry(msgspec.Struct, frozen=True):
    """A question that was drawn, and its answers."""

    round: int
    task: str
    """The task's label."""
    question: Question
    state: Literal["open", "answered", "skipped"] = "open"
    answers: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    """One for each answer, by the own verifier."""
    answered: float | None = None
    """Seconds since 1970."""
    learners: tuple[Learner, ...] = ()


class Journal:
    """Of one contributor, held by one process. Threads may share it. Raises `UserError` where it cannot be used."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._clock = clock
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
            for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT")  # from now on no other process has it
        except (sqlite3.Error, OSError) as error:
            if "locked" in str(error):
                raise UserError(f"another `shoal human` has {path}: end it, or choose another --home") from None
            raise UserError(f"cannot use {path}: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def last(self) -> int:
        """The round of the last question."""
        [[last]] = self._do("SELECT MAX(round) FROM entries")
        return int(self._clock()) if last is None else int(last)

    def offer(self, entry: Entry) -> Entry:
        """Records that a question is asked. What is recorded is on disk when this returns."""
        row = entry.round, entry.state, entry.question.hash, msgspec.json.encode(entry).decode()
        self._do("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", *row)
        return entry

    def settle(self, round: int, answers: Sequence[str] = (), rewards: Sequence[float] = ()) -> Entry:
        """Records the answers to an open question, or without answers that it is skipped. Raises `LookupError` where it
        is not open."""
        with self._lock:
            found = self._entries("round = ? AND state = 'open'", round)
            if not found:
                raise LookupError(f"no question waits for an answer in round {round}")
            given = {"answers": tuple(answers), "rewards": tuple(rewards), "answered": self._clock()}
            return self.offer(replace(found[0], state="answered" if answers else "skipped", **given))

    def open(self) -> list[Entry]:
        """Questions that wait for an answer, oldest first."""
        return self._entries("state = 'open' ORDER BY round")

    def answered(self, limit: int = 50, before: int = 2**62) -> list[Entry]:
        """Answered questions, the newest first, in rounds below `before`."""
        return self._entries("state = 'answered' AND round < ? ORDER BY round DESC LIMIT ?", before, limit)

    def asked(self, hash: str) -> bool:
        """Whether a question of this text was asked before."""
        return bool(self._do("SELECT 1 FROM entries WHERE hash = ? LIMIT 1", hash))

    def totals(self) -> dict[str, float]:
        """How many were answered, the sum of their mean rewards, how often nodes learned from one, and how many
        nodes."""
        return dict(zip(("answered", "reward", "taught", "learners"), self._do(TOTALS)[0], strict=True))

    def learned(self, rounds: Iterable[int], by: Learner) -> int:
        """Records that a node learned from the answers of these rounds; how many of them are new. It counts once for
        an answer, since it may say so in each of its rounds."""
        new = 0
        with self._lock, self._db:  # one transaction
            self._db.execute("BEGIN")
            for round in set(rounds):
                for entry in self._entries("round = ? AND state = 'answered'", round):
                    known = entry.learners
                    if len(known) < MOST_LEARNERS and by.node not in [each.node for each in known]:
                        self.offer(replace(entry, learners=(*known, by)))
                        new += 1
        return new

    def _entries(self, where: str, *values: Any) -> list[Entry]:
        rows = self._do(f"SELECT entry FROM entries WHERE {where}", *values)
        return [msgspec.json.decode(entry, type=Entry) for (entry,) in rows]

    def _do(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()
