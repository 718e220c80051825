"""What a judge keeps, and what follows from it."""

from __future__ import annotations

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import rows

from shoal.errors import UserError
from shoal.evaluation.pass_at_k import wilson
from shoal.identity.keys import Identity
from shoal.rollout import QuestionId
from shoal_host.judge import reports
from shoal_host.judge.records import FILE, Records, answer_row, ask_rows, outcome_row
from shoal_host.judge.rules import Session, Stage

A, B = Identity.generate(), Identity.generate()
serial = itertools.count(1)


@pytest.fixture
def records(tmp_path: Path) -> Iterator[Records]:
    made = Records(tmp_path / "judge")
    yield made
    made.close()


def session(key: bytes, number: int, model: str = "m", in_swarm: bool = True, round: int | None = None) -> Session:
    id = next(serial)
    made = Session(id, key, number, number if round is None else round, model, in_swarm, b"h" * 32, 1.0, 61.0, 61.0)
    made.task, made.question, made.posed = "gcd", QuestionId("gcd", "1", "c", 2**62, 3), bytes([id % 256]) * 32
    made.stage = Stage.open
    return made


def keep(records: Records, made: Session, score: float | None = None, stage: Stage = Stage.scored) -> Session:
    records.append(*ask_rows(made, b"ask", b"s" * 64)).result(10)
    if score is not None:
        made.answer = b"a" * 32
        records.append(answer_row(made, 2.0, b"answer", b"s" * 64)).result(10)
        made.stage, made.score, made.settled = stage, score, 3.0
        records.append(outcome_row(made)).result(10)
    elif stage != Stage.scored:
        made.stage, made.settled = stage, 3.0
        records.append(outcome_row(made)).result(10)
    return made


def test_what_is_kept_comes_back(records: Records) -> None:
    assert records.last(A.public) is None
    first = keep(records, session(A.public, 0), 1.0)
    assert records.last(A.public) == first
    second = keep(records, session(A.public, 1))
    assert records.last(A.public) == second
    third = session(B.public, 0)
    keep(records, third)
    third.answer, third.stage = b"b" * 32, Stage.answered
    records.append(answer_row(third, 2.0, b"statement", b"s" * 64)).result(10)
    assert list(records.unsettled()) == [(second, b""), (third, b"statement")]
    assert records.next_id() == third.id + 1


def test_nothing_twice(records: Records) -> None:
    made = keep(records, session(A.public, 0), 1.0)
    same_number, same_round = session(A.public, 0, round=9), session(A.public, 1, round=0)
    for batch in (
        ask_rows(same_number, b"", b""),
        ask_rows(same_round, b"", b""),
        [answer_row(made, 9.0, b"other", b"")],
        [outcome_row(made)],
        [outcome_row(session(A.public, 5))],  # of what was never asked
    ):
        with pytest.raises(sqlite3.IntegrityError):
            records.append(*batch).result(10)
    assert [row["score"] for row in rows(records.path)] == [1.0]


def test_one_bad_append_does_no_harm_to_others(records: Records) -> None:
    made = keep(records, session(A.public, 0), 1.0)
    good = [session(B.public, number) for number in range(50)]
    futures = [records.append(*ask_rows(each, b"", b"")) for each in good[:25]]
    bad = records.append(outcome_row(made))
    futures += [records.append(*ask_rows(each, b"", b"")) for each in good[25:]]
    for future in futures:
        future.result(10)
    with pytest.raises(sqlite3.IntegrityError):
        bad.result(10)
    assert len(list(records.unsettled())) == 50


@pytest.mark.parametrize("table", ["nodes", "asks", "answers", "outcomes"])
def test_nothing_is_changed_or_deleted(records: Records, table: str) -> None:
    keep(records, session(A.public, 0), 1.0)
    for sql in (f"DELETE FROM {table}", f"UPDATE {table} SET rowid = rowid + 1"):
        with pytest.raises(sqlite3.IntegrityError, match="only ever added to"):
            records.append((sql, ())).result(10)


def test_everything_appended_is_there_after_closing(tmp_path: Path) -> None:
    records = Records(tmp_path)
    for number in range(1000):
        records.append(*ask_rows(session(A.public, number), b"", b""))
    records.close()
    again = Records(tmp_path)
    assert len(list(again.unsettled())) == 1000
    again.close()


def test_one_judge_for_one_folder(records: Records) -> None:
    code = "import pathlib, sys, shoal_host.judge.records as r; r.Records(pathlib.Path(sys.argv[1]))"
    other = subprocess.run([sys.executable, "-c", code, records.path.parent], capture_output=True, text=True)
    assert "UserError: another judge has its records in" in other.stderr


def test_no_records(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"something else, and long enough to be looked at" * 100)
    with pytest.raises(UserError, match=FILE):
        Records(tmp_path)
    with pytest.raises(UserError, match="no records"):
        reports.leaderboard_of(tmp_path / "absent" / FILE)


def test_the_leaderboard_is_by_what_is_certain(records: Records) -> None:
    lucky, steady, new = (Identity.generate().public for _ in range(3))
    for number in range(50):
        keep(records, session(lucky, number), float(number % 10 < 8))
    for number in range(80):
        keep(records, session(steady, number, in_swarm=number > 5), float(number % 10 < 8))
    for number in range(49):
        keep(records, session(new, number), 1.0)
    board = reports.leaderboard_of(records.path)
    assert [(row["key"], row["rank"]) for row in board] == [(steady.hex(), 1), (lucky.hex(), 2), (new.hex(), None)]
    assert (board[0]["pass@1"], board[0]["questions"], board[0]["in_swarm"]) == (0.8, 80, None)
    assert (board[0]["low"], board[0]["high"]) == wilson(0.8, 80)
    assert reports.leaderboard_of(records.path, 1) == board[:1]


def test_unanswered_questions_give_no_rank(records: Records) -> None:
    for number in range(100):
        keep(records, session(A.public, number), 1.0, stage=Stage.scored if number % 2 else Stage.lapsed)
    keep(records, session(A.public, 100), stage=Stage.void)
    assert reports.leaderboard_of(records.path)[0]["rank"] == 1
    keep(records, session(A.public, 101), stage=Stage.void)  # 49 answers among the last 100 questions
    assert reports.leaderboard_of(records.path)[0]["rank"] is None


def test_the_leaderboard_is_of_the_last_questions(records: Records) -> None:
    for number in range(130):  # it has learned since; rounds may be far apart
        keep(records, session(A.public, number, round=20 * number), float(number >= 80))
    keep(records, session(B.public, 0, round=7), 1.0)
    board = {row["key"]: row for row in reports.leaderboard_of(records.path)}
    assert (board[A.public.hex()]["pass@1"], board[A.public.hex()]["questions"]) == (0.5, 100)
    assert board[B.public.hex()]["questions"] == 1


def test_lapsed_is_wrong_and_void_is_nothing(records: Records) -> None:
    keep(records, session(A.public, 0), 1.0)
    keep(records, session(A.public, 1), stage=Stage.lapsed)
    keep(records, session(A.public, 2), stage=Stage.void)
    keep(records, session(A.public, 3))  # still open
    [row] = reports.leaderboard_of(records.path)
    assert (row["pass@1"], row["questions"], row["lapsed"], row["void"]) == (0.5, 2, 1, 1)
    assert [row["outcome"] for row in rows(records.path)] == ["scored", "lapsed", "void"]


def test_partial_credit_is_not_pass_at_1(records: Records) -> None:
    keep(records, session(A.public, 0), 0.99)
    [row] = reports.leaderboard_of(records.path)
    assert row["pass@1"] == 0
    assert next(rows(records.path))["score"] == 0.99
