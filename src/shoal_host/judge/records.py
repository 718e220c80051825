"""What a judge stores: append-only tables in SQLite, from which it continues after any kind of end.

    nodes      every key that was granted a question
    asks       every question, before it goes out, with the signed Ask
    answers    every answer that came in time, before it is scored, with the signed Answer
    outcomes   the one end of each question: scored, lapsed, void

Triggers refuse to change or delete rows, and unique keys refuse a second outcome, answer, number or round.

WAL with `synchronous=FULL`: nothing is acknowledged before it is on disk. A question takes three fsyncs.
"""

import contextlib
import sqlite3
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.runs.disk import disk_errors, locked
from shoal_host.judge.rules import Session, Stage

FILE = "records.sqlite"
LONGEST = 1 << 20
"""Bytes of a value that is read from a file; a question or an answer has fewer."""
SCHEMA = """
CREATE TABLE IF NOT EXISTS nodes (id INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, first REAL NOT NULL);
CREATE TABLE IF NOT EXISTS asks (
  id INTEGER PRIMARY KEY, node INTEGER NOT NULL REFERENCES nodes, number INTEGER NOT NULL, round INTEGER NOT NULL,
  model TEXT NOT NULL, in_swarm INTEGER NOT NULL, asked REAL NOT NULL, expires REAL NOT NULL,
  label TEXT NOT NULL, task TEXT NOT NULL, version TEXT NOT NULL, config TEXT NOT NULL, seed INTEGER NOT NULL,
  place INTEGER NOT NULL, hash BLOB NOT NULL, posed BLOB NOT NULL, statement BLOB NOT NULL, signature BLOB NOT NULL,
  UNIQUE (node, number), UNIQUE (node, round));
CREATE TABLE IF NOT EXISTS answers (
  ask INTEGER PRIMARY KEY REFERENCES asks, time REAL NOT NULL, hash BLOB NOT NULL, statement BLOB NOT NULL,
  signature BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes (
  ask INTEGER PRIMARY KEY REFERENCES asks, time REAL NOT NULL, score REAL NOT NULL, failure TEXT NOT NULL,
  outcome TEXT NOT NULL CHECK (outcome IN ('scored', 'lapsed', 'void')));
"""
KEPT = ("nodes", "asks", "answers", "outcomes")
SESSIONS = """
SELECT a.id, n.key, a.number, a.round, a.model, a.in_swarm, a.hash, a.asked, a.expires, a.expires, a.label, a.posed,
  coalesce(w.hash, x''), coalesce(o.score, 0.0), coalesce(o.time, 0.0), o.outcome, w.statement,
  a.task, a.version, a.config, a.seed, a.place
FROM asks a JOIN nodes n ON n.id = a.node LEFT JOIN answers w ON w.ask = a.id LEFT JOIN outcomes o ON o.ask = a.id
"""
Row = tuple[str, tuple[Any, ...]]
"""A statement of SQL with its values."""


class Records:
    """Writes the records, and reads what `Rules` needs. Close it."""

    def __init__(self, folder: Path) -> None:
        """Raises `UserError` if the folder cannot be made or written to, if its records cannot be read, or if another
        judge has them open."""
        with disk_errors(folder):
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._lock = locked(folder, busy=f"another judge has its records in {folder}")
        self.path = folder / FILE
        self._reader = connect(self.path)  # for the thread of the rules
        self._writer = connect(self.path)
        self._thread = ThreadPoolExecutor(1, "shoal-judge-records")
        try:
            self._prepare()
        except sqlite3.Error as error:
            raise UserError(f"{self.path}: {error}") from error

    def append(self, *rows: Row) -> Future[None]:
        """Writes all of `rows` or none; done when they are on disk. It fails with `sqlite3.Error`."""
        return self._thread.submit(self._commit, rows)

    def last(self, key: bytes) -> Session | None:
        """The last question of the node with `key`."""
        where = "WHERE a.node = (SELECT id FROM nodes WHERE key = ?) ORDER BY a.number DESC LIMIT 1"
        found = self._reader.execute(f"{SESSIONS} {where}", (key,)).fetchone()
        return _session(found)[0] if found else None

    def unsettled(self) -> Iterator[tuple[Session, bytes]]:
        """The questions without an outcome in order, each with the statement of its answer or nothing."""
        return map(_session, self._reader.execute(f"{SESSIONS} WHERE o.ask IS NULL ORDER BY a.id"))

    def next_id(self) -> int:
        [found] = self._reader.execute("SELECT coalesce(max(id), 0) + 1 FROM asks").fetchone()
        return int(found)

    def close(self) -> None:
        """Writes all that was appended."""
        self._thread.shutdown()
        self._writer.close()
        self._reader.close()
        self._lock.close()

    def _prepare(self) -> None:
        self._writer.executescript(SCHEMA)
        for table in KEPT:
            for verb in ("UPDATE", "DELETE"):
                self._writer.execute(
                    f"CREATE TRIGGER IF NOT EXISTS {table}_{verb} BEFORE {verb} ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'records are only ever added to'); END"
                )

    def _commit(self, rows: Sequence[Row]) -> None:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            for sql, values in rows:
                self._writer.execute(sql, values)
            self._writer.execute("COMMIT")
        except BaseException:
            with contextlib.suppress(sqlite3.Error):  # a full disk has undone it
                self._writer.execute("ROLLBACK")
            raise


def connect(path: Path, read_only: bool = False) -> sqlite3.Connection:
    """Raises `UserError`."""
    try:
        if read_only:
            if not path.is_file():  # to open a named pipe would wait for ever
                raise UserError(f"there are no records in {path.parent}")
            connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, check_same_thread=False)
            connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LONGEST)  # it may be a stranger's
            connection.execute("PRAGMA trusted_schema=OFF")
        else:
            connection = sqlite3.connect(path, isolation_level=None, check_same_thread=False, timeout=10)
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "foreign_keys=ON"):
                connection.execute(f"PRAGMA {pragma}")
    except sqlite3.Error as error:
        raise UserError(f"cannot open {path}: {error}") from error
    return connection


def _session(row: Sequence[Any]) -> tuple[Session, bytes]:
    """A row of SESSIONS: a question, and the statement of its answer or nothing."""
    id, key, number, round, model, in_swarm, ask, asked, expires, deadline, label, posed, answer, *rest = row
    score, settled, outcome, statement, *question = rest
    stage = Stage(outcome) if outcome else Stage.answered if answer else Stage.open
    head = (id, key, number, round, model, bool(in_swarm), ask, asked, expires, deadline)
    return Session(*head, stage, label, QuestionId(*question), posed, answer, score, settled), statement or b""


def ask_rows(session: Session, statement: bytes, signature: bytes) -> list[Row]:
    """What is stored of a question before it goes out."""
    s, q = session, session.question
    assert q is not None, "not drawn yet"
    values = (s.number, s.round, s.model, s.in_swarm, s.asked, s.expires, s.task, q.task, q.version, q.config, q.seed)
    rest = (q.index, s.ask, s.posed, statement, signature)
    insert = f"INSERT INTO asks VALUES (?, (SELECT id FROM nodes WHERE key = ?){', ?' * 16})"
    return [
        ("INSERT OR IGNORE INTO nodes (key, first) VALUES (?, ?)", (s.key, s.asked)),
        (insert, (s.id, s.key, *values, *rest)),
    ]


def answer_row(session: Session, time: float, statement: bytes, signature: bytes) -> Row:
    return "INSERT INTO answers VALUES (?, ?, ?, ?, ?)", (session.id, time, session.answer, statement, signature)


def outcome_row(session: Session, failure: str = "") -> Row:
    values = (session.id, session.settled, session.score, failure, session.stage.value)
    return "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?)", values
