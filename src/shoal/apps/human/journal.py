"""What a contributor was asked, what it answered, how that scored, and who learned from it: one SQLite file.

    with closing(Journal(folder / "reef.sqlite")) as journal:
        round = journal.reserve()                          # on disk before anybody sees the question
        journal.offer(Entry(round, 0, "gcd", question))
        journal.answer(round, 0, ["6"], [1.0])

A question of a swarm is bound to its (round, slot), and the second message with the same one is a replay to whoever had
the first. So a number is never given twice, whatever happens: it is written down before it is used, and a journal that
begins begins with the seconds since 1970, in case an earlier one of the same identity was lost.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from shoal.errors import UserError
from shoal.rollout import Question

VERSION: Final = 1
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
    name TEXT NOT NULL, model TEXT, at INTEGER NOT NULL, time REAL NOT NULL,
    UNIQUE (round, slot, node, at)
);
CREATE TABLE IF NOT EXISTS numbers (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
"""

State = Literal["open", "answered", "skipped"]


class Entry(msgspec.Struct, frozen=True):
    """A question that was drawn, and what became of it."""

    round: int
    slot: int
    task: str
    """The task's label."""
    question: Question
    state: State = "open"
    answers: tuple[str, ...] = ()
    rewards: tuple[float, ...] = ()
    """One for each answer, by the own verifier."""
    offered: float = 0.0
    answered: float | None = None
    """Seconds since 1970, both."""


class Learned(msgspec.Struct, frozen=True):
    """A node says that it learned from an answer."""

    number: int
    """Of this entry: later ones have higher numbers."""
    round: int
    slot: int
    node: str
    """Its key, in hex."""
    name: str
    model: str | None
    at: int
    """The node's own round."""
    time: float
    """By its own clock."""


class Journal:
    """One contributor's, held by one process. Threads may share it. Raises `UserError` where it cannot be had."""

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
            self._db.execute("INSERT OR IGNORE INTO numbers VALUES ('version', ?)", (VERSION,))
            self._db.execute("INSERT OR IGNORE INTO numbers VALUES ('round', ?)", (int(clock()),))
            self._db.execute("COMMIT")
            version = self._number("version")
        except (sqlite3.Error, OSError) as error:
            if "locked" in str(error):
                raise UserError(f"another `shoal human` has {path}: end it, or choose another --home") from None
            raise UserError(f"cannot use {path}: {error}") from error
        if version > VERSION:
            self.close()
            raise UserError(f"{path} was written by a later version of shoal")

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def reserve(self) -> int:
        """A round that was never given before, and never will be again."""
        with self._lock:
            self._do("UPDATE numbers SET value = value + 1 WHERE name = 'round'")
            return self._number("round")

    def offer(self, entry: Entry) -> Entry:
        """Writes down that a question is asked."""
        entry = msgspec.structs.replace(entry, offered=self._clock())
        self._do(
            "INSERT INTO questions VALUES (?, ?, ?, ?, ?, 'open', '[]', '[]', ?, NULL)",
            entry.round,
            entry.slot,
            entry.task,
            entry.question.hash,
            msgspec.json.encode(entry.question),
            entry.offered,
        )
        return entry

    def answer(self, round: int, slot: int, answers: Sequence[str], rewards: Sequence[float]) -> Entry:
        """Writes down answers to an open question. Raises `LookupError` where it is not open."""
        self._settle(round, slot, "answered", answers, rewards)
        entry = self.entry(round, slot)
        assert entry is not None
        return entry

    def skip(self, round: int, slot: int) -> None:
        """Writes down that a question will not be answered. Raises as `answer` does."""
        self._settle(round, slot, "skipped", (), ())

    def entry(self, round: int, slot: int) -> Entry | None:
        rows = self._read("SELECT * FROM questions WHERE round = ? AND slot = ?", round, slot)
        return _entry(rows[0]) if rows else None

    def open(self) -> list[Entry]:
        """Questions that wait for an answer, oldest first."""
        return list(map(_entry, self._read("SELECT * FROM questions WHERE state = 'open' ORDER BY round, slot")))

    def answered(self, limit: int = 50, before: int | None = None, since: float = 0.0) -> list[Entry]:
        """What was answered, the newest first: in rounds below `before`, and after the time `since`."""
        rows = self._read(
            "SELECT * FROM questions WHERE state = 'answered' AND round < ? AND answered >= ?"
            " ORDER BY round DESC, slot DESC LIMIT ?",
            2**62 if before is None else before,
            since,
            limit,
        )
        return list(map(_entry, rows))

    def asked(self, hash: str) -> bool:
        """Whether a question of this text was asked before."""
        return bool(self._read("SELECT 1 FROM questions WHERE hash = ? LIMIT 1", hash))

    def rewards(self, task: str, last: int) -> list[float]:
        """The mean rewards of the last answers to questions of `task`, the newest first."""
        rows = self._read(
            "SELECT rewards FROM questions WHERE state = 'answered' AND task = ? ORDER BY round DESC LIMIT ?",
            task,
            last,
        )
        values = [msgspec.json.decode(row[0], type=list[float]) for row in rows]
        return [sum(each) / len(each) for each in values if each]

    def totals(self) -> dict[str, float]:
        """How many were answered, how they scored in all, and how many of them some node learned from."""
        answered, reward = self._read(
            "SELECT COUNT(*), COALESCE(SUM((SELECT AVG(value) FROM json_each(rewards))), 0) FROM questions"
            " WHERE state = 'answered'"
        )[0]
        taught, learners = self._read("SELECT COUNT(DISTINCT round * 64 + slot), COUNT(DISTINCT node) FROM lessons")[0]
        return {"answered": answered, "reward": reward, "taught": taught, "learners": learners}

    def learned(self, lessons: Sequence[Learned]) -> int:
        """Takes in what nodes say; how much of it is about an own answer, and new."""
        with self._lock:
            before = self._db.total_changes
            for one in lessons:
                self._do(
                    "INSERT OR IGNORE INTO lessons (round, slot, node, name, model, at, time)"
                    " SELECT round, slot, ?, ?, ?, ?, ? FROM questions"
                    " WHERE round = ? AND slot = ? AND state = 'answered'",
                    *(one.node, one.name, one.model, one.at, one.time, one.round, one.slot),
                )
            return self._db.total_changes - before

    def lessons(self, after: int = 0, limit: int = 200) -> list[Learned]:
        """Who learned from what, of higher numbers than `after`: the first of them, in order."""
        rows = self._read("SELECT * FROM lessons WHERE number > ? ORDER BY number LIMIT ?", after, limit)
        return [Learned(*row) for row in rows]

    def lessons_of(self, entries: Sequence[Entry]) -> dict[tuple[int, int], list[Learned]]:
        """Who learned from each of `entries`."""
        found: dict[tuple[int, int], list[Learned]] = {(entry.round, entry.slot): [] for entry in entries}
        for round, slot in found:
            rows = self._read("SELECT * FROM lessons WHERE round = ? AND slot = ? ORDER BY number", round, slot)
            found[round, slot] = [Learned(*row) for row in rows]
        return found

    def _settle(self, round: int, slot: int, state: State, answers: Sequence[str], rewards: Sequence[float]) -> None:
        with self._lock:
            done = self._do(
                "UPDATE questions SET state = ?, answers = ?, rewards = ?, answered = ?"
                " WHERE round = ? AND slot = ? AND state = 'open'",
                state,
                msgspec.json.encode(list(answers)).decode(),
                msgspec.json.encode(list(rewards)).decode(),
                self._clock(),
                round,
                slot,
            )
        if not done.rowcount:
            raise LookupError(f"no question waits for an answer in round {round}, slot {slot}")

    def _number(self, name: str) -> int:
        return int(self._read("SELECT value FROM numbers WHERE name = ?", name)[0][0])

    def _do(self, statement: str, *values: Any) -> sqlite3.Cursor:
        """One change, which is on the disk when this returns."""
        with self._lock:
            return self._db.execute(statement, values)

    def _read(self, statement: str, *values: Any) -> list[tuple[Any, ...]]:
        with self._lock:
            return self._db.execute(statement, values).fetchall()


def _entry(row: Sequence[Any]) -> Entry:
    round, slot, task, _, question, state, answers, rewards, offered, answered = row
    return Entry(
        round,
        slot,
        task,
        msgspec.json.decode(question, type=Question),
        state,
        tuple(msgspec.json.decode(answers)),
        tuple(map(float, msgspec.json.decode(rewards))),
        offered,
        answered,
    )
