"""A contributor's questions, answers, scores, and who learned from them: one SQLite file.

    with closing(Journal(folder / "lagoon.sqlite")) as journal:
        round = journal.reserve()                          # on disk before anybody sees the question
        journal.offer(Entry(round, 0, "gcd", question))
        journal.settle(round, 0, ["6"], [1.0])

A question of a swarm is bound to its (round, slot); nodes drop a second message with the same one as a replay. So no
round is given twice, whatever happens: it is on disk before it is used, and a new journal starts at the seconds since
1970, in case an earlier one of the same identity was lost.
"""

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from shoal.errors import UserError
from shoal.rollout import Question

MOST_LEARNERS: Final = 64  # nodes that are kept of each answer, the first
SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS questions (
    round INTEGER NOT NULL, slot INTEGER NOT NULL, task TEXT NOT NULL, hash TEXT NOT NULL, question BLOB NOT NULL,
    state TEXT NOT NULL, answers TEXT NOT NULL, rewards TEXT NOT NULL, offered REAL NOT NULL, answered REAL,
    PRIMARY KEY (round, slot)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS by_state ON questions (state, task);
CREATE INDEX IF NOT EXISTS by_hash ON questions (hash);
CREATE TABLE IF NOT EXISTS lessons (
    number INTEGER PRIMARY KEY AUTOINCREMENT, round INTEGER NOT NULL, slot INTEGER NOT NULL, node TEXT NOT NULL,
    name TEXT NOT NULL, model TEXT, at INTEGER NOT NULL, time REAL NOT NULL
);
DELETE FROM lessons WHERE number NOT IN (SELECT MIN(number) FROM lessons GROUP BY round, slot, node);
CREATE UNIQUE INDEX IF NOT EXISTS one_lesson ON lessons (round, slot, node);
CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""

State = Literal["open", "answered", "skipped"]


class Entry(msgspec.Struct, frozen=True):
    """A question that was drawn, and its answers."""

    round: int
    slot: int
    task: str
    """The task's label."""
    question: Question
    state: State = "open"
    answers: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    """One for each answer, by the own verifier."""
    answered: float | None = None
    """Seconds since 1970."""


class Learned(msgspec.Struct, frozen=True):
    """A node says that it learned from an answer."""

    number: int
    """Later entries have higher numbers."""
    round: int
    slot: int
    node: str
    """Its key, in hex."""
    name: str
    model: str | None
    at: int
    """The node's own round, the first that it tells."""
    time: float
    """By its own clock."""


class Journal:
    """Of one contributor, held by one process. Threads may share it. Raises `UserError` where it cannot be used."""

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self.path, self._clock = path, clock
        self._lock = threading.RLock()
        try:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._db = sqlite3.connect(path, timeout=1.0, isolation_level=None, check_same_thread=False)
            for pragma in ("locking_mode = EXCLUSIVE", "journal_mode = WAL", "synchronous = FULL"):
                self._db.execute(f"PRAGMA {pragma}")
            self._db.execute("BEGIN EXCLUSIVE")  # from now on no other process has it
            for statement in SCHEMA.split(";"):
                self._db.execute(statement)
            self._db.execute("INSERT OR IGNORE INTO numbers VALUES ('round', ?)", (int(clock()),))
            self._db.execute("COMMIT")
        except (sqlite3.Error, OSError) as error:
            if "locked" in str(error):
                raise UserError(f"another `shoal human` has {path}: end it, or choose another --home") from None
            raise UserError(f"cannot use {path}: {error}") from error

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def reserve(self) -> int:
        """A round that was never given before."""
        return int(self._do("UPDATE numbers SET value = value + 1 WHERE name = 'round' RETURNING value")[0][0])

    def offer(self, entry: Entry) -> Entry:
        """Records that a question is asked."""
        values = (entry.round, entry.slot, entry.task, entry.question.hash, msgspec.json.encode(entry.question))
        self._do("INSERT INTO questions VALUES (?, ?, ?, ?, ?, 'open', '[]', '[]', ?, NULL)", *values, self._clock())
        return entry

    def settle(self, round: int, slot: int, answers: Sequence[str] = (), rewards: Sequence[float] = ()) -> Entry:
        """Records the answers to an open question, or without answers that it is skipped. Raises `LookupError` where it
        is not open."""
        texts = (msgspec.json.encode(list(each)).decode() for each in (answers, rewards))
        done = self._do(
            "UPDATE questions SET state = ?, answers = ?, rewards = ?, answered = ?"
            " WHERE round = ? AND slot = ? AND state = 'open' RETURNING *",
            *("answered" if answers else "skipped", *texts, self._clock(), round, slot),
        )
        if not done:
            raise LookupError(f"no question waits for an answer in round {round}, slot {slot}")
        return _entry(done[0])

    def open(self) -> list[Entry]:
        """Questions that wait for an answer, oldest first."""
        return list(map(_entry, self._do("SELECT * FROM questions WHERE state = 'open' ORDER BY round, slot")))

    def answered(self, limit: int = 50, before: int = 2**62) -> list[Entry]:
        """Answered questions, the newest first, in rounds below `before`."""
        sql = "state = 'answered' AND round < ? ORDER BY round DESC, slot DESC LIMIT ?"
        return list(map(_entry, self._do(f"SELECT * FROM questions WHERE {sql}", before, limit)))

    def asked(self, hash: str) -> bool:
        """Whether a question of this text was asked before."""
        return bool(self._do("SELECT 1 FROM questions WHERE hash = ? LIMIT 1", hash))

    def totals(self) -> dict[str, float]:
        """How many were answered, the sum of their mean rewards, how many taught some node, and how many nodes."""
        answered, reward = self._do(
            "SELECT COUNT(*), COALESCE(SUM((SELECT AVG(value) FROM json_each(rewards))), 0) FROM questions"
            " WHERE state = 'answered'"
        )[0]
        taught, learners = self._do("SELECT COUNT(DISTINCT round * 64 + slot), COUNT(DISTINCT node) FROM lessons")[0]
        return {"answered": answered, "reward": reward, "taught": taught, "learners": learners}

    def learned(self, lessons: Sequence[Learned]) -> int:
        """Records what nodes say; returns how many of it are new and about an own answer. A node counts once for an
        answer, since it may say so in each of its rounds."""
        with self._lock, self._db:  # one transaction
            before = self._db.total_changes
            self._db.execute("BEGIN")
            self._db.executemany(
                "INSERT OR IGNORE INTO lessons (round, slot, node, name, model, at, time)"
                " SELECT round, slot, :node, :name, :model, :at, :time FROM questions AS own"
                " WHERE round = :round AND slot = :slot AND state = 'answered' AND"
                f" (SELECT COUNT(*) FROM lessons WHERE round = own.round AND slot = own.slot) < {MOST_LEARNERS}",
                map(msgspec.structs.asdict, lessons),
            )
            return self._db.total_changes - before

    def lessons(self, after: int = 0, limit: int = 200) -> list[Learned]:
        """Who learned from what, in order: the first with higher numbers than `after`."""
        rows = self._do("SELECT * FROM lessons WHERE number > ? ORDER BY number LIMIT ?", after, limit)
        return [Learned(*row) for row in rows]

    def _do(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        """The rows of a statement. What it changes is on disk when this returns."""
        with self._lock:
            return self._db.execute(statement, values).fetchall()


def _entry(row: Sequence[Any]) -> Entry:
    round, slot, task, _, question, state, answers, rewards, _, answered = row
    made = msgspec.json.decode(question, type=Question)
    texts, scores = (tuple(msgspec.json.decode(each)) for each in (answers, rewards))
    return Entry(round, slot, task, made, state, texts, tuple(map(float, scores)), answered)
