"""The smaller parts of a judge: which question comes next, and the lanes in which answers are scored."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.rollout import QuestionId
from shoal.tasks import Tasks
from shoal_host.addresses import address_of
from shoal_host.judge.fair_thread import FairThread
from shoal_host.judge.questions import Questions, read_secret
from shoal_host.judge.scoring import Scoring

QUESTION = QuestionId("gcd", "1", "c", 5, 0)


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(TasksConfig(suite="pond"))


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
        ("::1", "::1"),
        ("testclient", "testclient"),
    ],
)
def test_addresses_as_they_are_counted(host: str, counted: str) -> None:
    assert address_of(host) == counted


def test_questions_are_held_out_and_the_same_again(tasks: Tasks) -> None:
    questions = Questions(tasks, b"s" * 32)
    drawn = [questions.draw(b"k" * 32, number) for number in range(50)]
    assert all(tasks.is_held_out(question) for _, question in drawn)
    assert drawn == [Questions(tasks, b"s" * 32).draw(b"k" * 32, number) for number in range(50)]
    assert len({question.id.seed for _, question in drawn}) == 50


def test_nobody_knows_the_next_question_without_the_secret(tasks: Tasks) -> None:
    seeds = {
        Questions(tasks, secret * 32).draw(key * 32, number)[1].id.seed
        for secret in (b"s", b"t")
        for key in (b"k", b"l")
        for number in range(5)
    }
    assert len(seeds) == 20


def test_tasks_come_by_their_weights() -> None:
    config = TasksConfig.model_validate({"sources": [{"name": "gcd", "weight": 3}, {"name": "lcm", "weight": 1}]})
    questions = Questions(Tasks(config), b"s" * 32)
    labels = Counter(questions.draw(b"k" * 32, number)[0] for number in range(400))
    assert 260 < labels["gcd"] < 340


def test_the_levels_of_a_ladder_share_its_weight() -> None:
    config = TasksConfig.model_validate({"sources": [{"name": "gcd"}, {"name": "chain_sum", "levels": 3}]})
    questions = Questions(Tasks(config), b"s" * 32)
    labels = Counter(questions.draw(b"k" * 32, number)[0] for number in range(400))
    assert 160 < labels["gcd"] < 240
    assert labels.keys() == {"gcd", "chain_sum@1", "chain_sum@2", "chain_sum@3"}


def test_the_secret_is_made_once_and_is_secret(tmp_path: Path, tasks: Tasks) -> None:
    secret = read_secret(tmp_path)
    assert len(secret) == 32
    assert read_secret(tmp_path) == secret
    assert (tmp_path / "secret").stat().st_mode & 0o077 == 0
    with pytest.raises(UserError, match="32"):
        Questions(tasks, b"short")


def test_a_task_without_held_out_questions_is_refused(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "held_out", lambda *_: {"gcd": []})
    with pytest.raises(UserError, match="gcd"):
        Questions(tasks, b"s" * 32)


class Slow:
    """A scorer whom "hang" takes long, and "die" costs a try."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.deaths = 0
        self.released = threading.Event()

    def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]:
        [(_, [text])] = items
        if text == "hang":
            self.released.wait(10)
            self.failures["timeout"] += 1
            return [[0.0]]
        if text == "die" and not self.deaths:
            self.deaths += 1
            raise UserError("no worker")
        return [[1.0]]

    def close(self) -> None:
        self.released.set()


@pytest.mark.slow
def test_a_slow_answer_holds_up_its_own_lane_alone() -> None:
    scorers: list[Slow] = []

    def make() -> Slow:
        scorers.append(Slow())
        return scorers[-1]

    scoring = Scoring(make)
    slow = [scoring.submit(QUESTION, "hang", False, "a") for _ in range(3)]
    began = time.monotonic()
    assert [scoring.submit(QUESTION, "x", True, "a").result(5) for _ in range(100)] == [(1.0, "")] * 100
    assert time.monotonic() - began < 4
    assert not any(future.done() for future in slow)
    scorers[1].released.set()
    assert [future.result(5) for future in slow] == [(0.0, "timeout")] * 3
    scoring.close()


def test_an_answer_waits_for_a_worker_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_host.judge.scoring.PAUSES", (0.01,))
    notes: list[str] = []
    scoring = Scoring(Slow, QUESTION, notes.append)
    assert scoring.submit(QUESTION, "die", True, "a").result(5) == (1.0, "")
    assert notes == ["answers wait to be scored: no worker"]
    scoring.close()


class Work:
    """Work that takes so many seconds by a clock of its own, and notes whose it was."""

    def __init__(self) -> None:
        self.now = 0.0
        self.done: list[str] = []
        self.begin = threading.Event()

    def of(self, party: str, seconds: float) -> Callable[[], None]:
        def work() -> None:
            self.begin.wait(10)
            self.now += seconds
            self.done.append(party)

        return work


@pytest.mark.parametrize("hostile", [1, 2, 8])
def test_whoever_takes_long_waits_and_a_newcomer_does_not(hostile: int) -> None:
    work = Work()
    lane = FairThread("test", lambda: work.now)
    slow = [lane.submit(f"slow {number % hostile}", work.of("slow", 2.0)) for number in range(100)]
    quick = [lane.submit("quick", work.of("quick", 0.1)) for _ in range(50)]
    work.begin.set()
    for future in [*slow[:1], *quick]:
        future.result(10)
    seconds = [2.0 if party == "slow" else 0.1 for party in work.done]
    first, last = work.done.index("quick"), len(work.done) - work.done[::-1].index("quick")
    assert first <= hostile  # one of each that came before
    assert sum(seconds[:last]) <= (hostile + 1) * (50 * 0.1 + 2.0)  # at least its fair share of the time
    for future in slow:
        future.result(10)
    newcomer = [lane.submit(name, work.of(name, 0.1)) for name in ("slow 0", "new")]  # no debt, no credit
    for future in newcomer:
        future.result(10)
    lane.close()
    assert lane.submit("late", work.of("late", 0.0)).cancelled()


def test_nobody_saves_up_time_by_staying_away() -> None:
    work = Work()
    lane = FairThread("test", lambda: work.now)
    work.begin.set()
    lane.submit("away", work.of("away", 0.1)).result(10)
    for _ in range(20):
        lane.submit("here", work.of("here", 1.0)).result(10)
    work.begin.clear()
    held = lane.submit("here", work.of("here", 1.0))
    futures = [lane.submit(party, work.of(party, 1.0)) for _ in range(10) for party in ("away", "here")]
    work.begin.set()
    for future in [held, *futures]:
        future.result(10)
    assert 8 <= work.done[-18:].count("away") <= 10
    lane.close()


def test_what_waits_is_cancelled_at_the_end_and_errors_are_told() -> None:
    lane = FairThread("test")
    assert lane.submit("a", lambda: 1).result(10) == 1
    with pytest.raises(ZeroDivisionError):
        lane.submit("a", lambda: 1 / 0).result(10)
    release, begun = threading.Event(), threading.Event()
    running = lane.submit("a", lambda: (begun.set(), release.wait(10)))
    waiting = [lane.submit("a", lambda: 1) for _ in range(3)]
    begun.wait(10)
    assert (lane.waiting("a"), lane.waiting("b")) == (3, 0)
    release.set()
    lane.close()
    assert running.done()
    assert all(future.done() for future in waiting)
