"""The rules of a judge, with a clock in hand."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.rollout import QuestionId
from shoal_host.judge.messages import Answer, Ask, work_of
from shoal_host.judge.rules import Refused, Rules, Session, Stage, Terms

JUDGE = b"j" * 32
QUESTION = QuestionId("gcd", "1", "c", 5, 0)
serial = itertools.count()


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Trial:
    """The rules, and nodes that come under them."""

    def __init__(self, **terms: Any) -> None:
        self.clock = Clock()
        self.terms = Terms(**({"work": 0, "interval": 1.0} | terms))
        self.disk: dict[bytes, Session] = {}
        self.rules = Rules(JUDGE, self.terms, self.clock, self.disk.get)

    def statement(self, key: bytes, round: int, **values: Any) -> Ask:
        given: dict[str, Any] = {"nonce": bytes(16), "time": self.clock.now, "model": "m", "in_swarm": True}
        return Ask(judge=values.pop("judge", JUDGE), key=key, round=round, **(given | values))

    def ask(self, key: bytes, round: int, hash: bytes | None = None, **values: Any) -> Session:
        ask = self.statement(key, round, **values)
        self.rules.screen(ask)
        return self.rules.open(ask, hash or next(serial).to_bytes(32, "big"))

    def posed(self, key: bytes, round: int, **values: Any) -> Session:
        session = self.ask(key, round, **values)
        session.task, session.question, session.posed = "gcd", QUESTION, session.id.to_bytes(32, "big")
        session.stage = Stage.open
        return session

    def answer(self, session: Session, hash: bytes = b"a" * 32, judge: bytes = JUDGE) -> Session:
        answer = Answer(judge=judge, key=session.key, posed=session.posed, text="1")
        found = self.rules.answer(answer, hash)
        if found.stage == Stage.open:
            found.stage, found.answer = Stage.answered, hash
        return found

    def scored(self, key: bytes, round: int, score: float = 1.0) -> Session:
        session = self.answer(self.posed(key, round))
        self.rules.score(session, score)
        self.disk[key] = session
        self.rules.forget(session)
        return session


A, B = b"a" * 32, b"b" * 32


def refused(reason: str) -> Any:
    return pytest.raises(Refused, check=lambda refusal: refusal.reason == reason)


def test_one_question_one_answer_one_score() -> None:
    trial = Trial()
    session = trial.scored(A, 3)
    assert (session.stage, session.score, session.number, session.round) == (Stage.scored, 1.0, 0, 3)
    trial.clock.now += 5
    assert trial.ask(A, 4).number == 1
    assert len(trial.rules) == 1


def test_no_question_before_the_last_is_answered() -> None:
    """Who does not like a question gets no other: not by asking again, for another round, or as another model."""
    trial = Trial()
    first = trial.posed(A, 1)
    trial.clock.now += 10
    for values in ({"round": 1}, {"round": 2}, {"round": 9, "model": "other"}, {"round": 9, "in_swarm": False}):
        with refused("open") as caught:
            trial.ask(A, **values)  # type: ignore[arg-type]
        assert caught.value.retry_after == pytest.approx(first.deadline - trial.clock.now)
    trial.answer(first)
    with refused("open"):  # while it is marked
        trial.ask(A, 2)


def test_the_same_ask_again_gets_the_same_question() -> None:
    trial = Trial()
    first = trial.ask(A, 1, hash=b"h" * 32)
    assert trial.ask(A, 1, hash=b"h" * 32) is first
    first.posed = b"p" * 32
    first.stage = Stage.open
    assert trial.ask(A, 1, hash=b"h" * 32) is first
    trial.rules.score(trial.answer(first), 1.0)
    with refused("round"):  # a replay
        trial.ask(A, 1, hash=b"h" * 32)


def test_an_unanswered_question_lapses_and_counts() -> None:
    trial = Trial(limit=60.0)
    session = trial.posed(A, 1)
    trial.clock.now += 60
    assert trial.rules.lapse() == []
    trial.clock.now += 0.1
    assert trial.rules.lapse() == [session]
    assert (session.stage, session.score) == (Stage.lapsed, 0.0)
    assert trial.rules.lapse() == []
    with refused("late"):
        trial.answer(session)
    assert trial.ask(A, 2).number == 1


def test_an_answer_is_late_even_before_the_lapse_is_noticed() -> None:
    trial = Trial(limit=60.0)
    session = trial.posed(A, 1)
    trial.clock.now += 61
    with refused("late"):
        trial.answer(session)


def test_what_is_being_marked_does_not_lapse() -> None:
    trial = Trial(limit=60.0)
    session = trial.answer(trial.posed(A, 1))
    trial.clock.now += 1000
    assert trial.rules.lapse() == []
    trial.rules.score(session, 1.0)
    assert session.stage == Stage.scored


def test_the_same_answer_again_is_no_other() -> None:
    trial = Trial()
    session = trial.scored(A, 1)
    assert trial.answer(session) is session
    with refused("answered"):
        trial.answer(session, b"b" * 32)
    assert session.score == 1.0


def test_an_answer_is_to_the_last_question_alone() -> None:
    trial = Trial()
    first = trial.scored(A, 1)
    trial.clock.now += 5
    second = trial.posed(A, 2)
    with refused("unknown"):
        trial.answer(first)
    second.posed, kept = b"x" * 32, second.posed
    with refused("unknown"):
        trial.rules.answer(Answer(judge=JUDGE, key=A, posed=kept, text=""), b"a" * 32)
    with refused("unknown"):
        trial.rules.answer(Answer(judge=JUDGE, key=B, posed=second.posed, text=""), b"a" * 32)


@pytest.mark.parametrize("round", [0, 4, 5])
def test_rounds_only_rise(round: int) -> None:
    trial = Trial()
    trial.scored(A, 5)
    trial.clock.now += 5
    with pytest.raises(Refused, match="asked up to round 5, so the next question comes after round 6"):
        trial.ask(A, round)
    assert trial.ask(A, 6)


def test_the_screen() -> None:
    trial = Trial(work=10, clock_error=100.0)
    now, work = trial.clock.now, work_of(JUDGE, A, 10)
    with refused("judge"):
        trial.rules.screen(trial.statement(A, 1, judge=b"k" * 32, work=work))
    for time in (now - 101, now + 101):
        with refused("clock"):
            trial.rules.screen(trial.statement(A, 1, time=time, work=work))
    with refused("work"):
        trial.rules.screen(trial.statement(A, 1, work=work + 1 if work else 2**52 + 1))
    trial.rules.screen(trial.statement(A, 1, work=work))
    trial.scored(A, 1) if not work else trial.rules.open(trial.statement(A, 1, work=work), b"h" * 32)
    trial.rules.screen(trial.statement(A, 2, work=0))  # it is known: the work is done once
    with refused("judge"):
        trial.rules.answer(Answer(judge=b"k" * 32, key=A, posed=bytes(32), text=""), b"a" * 32)


def test_quotas() -> None:
    trial = Trial(interval=10.0, burst=2.0, newcomers=3.0, sessions=4)
    trial.scored(A, 1)
    trial.scored(A, 2)
    with refused("rate") as caught:
        trial.ask(A, 3)
    assert caught.value.retry_after == pytest.approx(10.0)
    trial.clock.now += caught.value.retry_after + 1e-6
    trial.scored(A, 3)
    for number in range(2):
        trial.posed(bytes([number]) * 32, 1)
    with refused("newcomers") as caught:
        trial.ask(bytes([2]) * 32, 1)
    trial.clock.now += caught.value.retry_after + 1e-6
    trial.posed(bytes([2]) * 32, 1)
    trial.posed(A, 4)
    with refused("crowded"):
        trial.ask(bytes([3]) * 32, 1)


def test_who_makes_many_keys_keeps_out_nobody_s_first() -> None:
    trial = Trial(newcomers=4.0)

    def opened(key: int, address: str) -> Session:
        return trial.rules.open(trial.statement(bytes([key]) * 32, 1), bytes([key]), address)

    for number in range(3):
        opened(number, "many")
    with refused("newcomers"):
        opened(3, "many")
    opened(4, "other")
    with refused("newcomers"):
        opened(5, "third")


def test_new_keys_of_one_address(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_host.judge.rules.ADDRESSES", 2)
    trial = Trial(address_newcomers=2.0)

    def opened(key: int, address: str) -> Session:
        return trial.rules.open(trial.statement(bytes([key]) * 32, 1), bytes([key]), address)

    opened(0, "a")
    opened(1, "a")
    with refused("newcomers") as caught:
        opened(2, "a")
    opened(3, "b")
    trial.clock.now += caught.value.retry_after + 1e-6
    opened(2, "a")
    opened(4, "c")
    assert len(trial.rules._addresses) == 2


def test_a_question_that_could_not_be_kept_was_never_asked() -> None:
    trial = Trial()
    session = trial.ask(A, 1)
    trial.rules.forget(session)
    assert len(trial.rules) == 0
    again = trial.ask(A, 1)
    assert (again.number, again.round) == (0, 1)


def test_an_answer_that_could_not_be_kept_may_come_again() -> None:
    trial = Trial(limit=60.0)
    session = trial.answer(trial.posed(A, 1))
    session.stage, session.answer = Stage.open, b""
    assert trial.answer(session, b"c" * 32).stage == Stage.answered
    session.stage, session.answer = Stage.open, b""
    trial.clock.now += 61
    assert trial.rules.lapse() == [session]


def restored(stage: Stage, **values: Any) -> tuple[Trial, Session]:
    session = Session(7, A, 3, 9, "m", True, b"h" * 32, 900.0, 960.0, 960.0, stage, "gcd", QUESTION, b"p" * 32)
    for name, value in values.items():
        setattr(session, name, value)
    trial = Trial(limit=60.0)
    trial.rules = Rules(
        JUDGE,
        trial.terms,
        trial.clock,
        lambda key: session if key == A else None,
        8,
    )
    return trial, session


def test_after_a_restart_an_open_question_has_its_time_again() -> None:
    trial, session = restored(Stage.open)
    trial.rules.restore([session])
    assert trial.rules.lapse() == []
    with refused("open"):
        trial.ask(A, 10)
    assert trial.ask(A, 9, hash=b"h" * 32) is session  # the same Ask
    trial.clock.now += 59
    assert trial.answer(session).stage == Stage.answered


def test_after_a_restart_an_unanswered_question_is_void() -> None:
    trial, session = restored(Stage.open)
    trial.rules.restore([session])
    trial.clock.now += 61
    assert trial.rules.lapse() == [session]
    assert session.stage == Stage.void
    assert trial.ask(A, 10).number == 4


def test_after_a_restart_replays_are_refused() -> None:
    trial, session = restored(Stage.scored, answer=b"a" * 32, score=1.0)
    with refused("round"):
        trial.ask(A, 9, hash=b"h" * 32)
    assert trial.answer(session) is session  # its verdict once more
    with refused("answered"):
        trial.answer(session, b"b" * 32)


def test_memory_has_what_is_under_way_and_the_disk_everything_else() -> None:
    trial = Trial()
    disk: dict[bytes, Session] = {}
    trial.rules = Rules(JUDGE, trial.terms, trial.clock, disk.get)
    first = trial.scored(A, 1)
    disk[A] = dataclasses.replace(first)
    trial.rules.forget(first)
    assert not trial.rules._current
    assert trial.answer(first) is disk[A]
    second = trial.posed(A, 2)
    trial.rules.forget(first)  # late
    assert second.number == 1
    with refused("open"):
        trial.ask(A, 3)


@given(st.lists(st.tuples(st.sampled_from(["ask", "pose", "answer", "mark", "wait", "fail"]), st.integers(0, 5))))
def test_whatever_happens_every_question_ends_once(deeds: list[tuple[str, int]]) -> None:
    trial = Trial(limit=10.0)
    sessions: list[Session] = []
    ended: list[int] = []
    for deed, number in deeds:
        session = sessions[number % len(sessions)] if sessions else None
        try:
            if deed == "ask":
                found = trial.ask(bytes([number % 2]) * 32, len(sessions) + 1)
                assert all(found is not other for other in sessions)
                sessions.append(found)
            elif deed == "wait":
                trial.clock.now += 3 * number
                for found in trial.rules.lapse():
                    trial.rules.forget(found)
                    ended.append(found.id)
            elif session is None:
                continue
            elif deed == "pose" and session.stage == Stage.drawing:
                session.question, session.posed = QUESTION, session.id.to_bytes(32, "big")
                session.stage = Stage.open
            elif deed == "answer" and session.posed:
                trial.answer(session, bytes([number]) * 32)
            elif deed == "mark" and session.stage == Stage.answered:
                trial.rules.score(session, 1.0)
                trial.rules.forget(session)
                ended.append(session.id)
            elif deed == "fail" and session.stage == Stage.answered:
                session.stage, session.answer = Stage.open, b""
        except Refused:
            pass
        under_way = [found.key for found in sessions if found.stage in (Stage.drawing, Stage.open, Stage.answered)]
        assert len(set(under_way)) == len(under_way) == len(trial.rules)
    assert len(set(ended)) == len(ended)
