"""The smaller parts of a judge: its addresses, which question comes next, and the lanes in which answers are scored."""

from __future__ import annotations

import threading
import time
from collections import Counter
from pathlib import Path

import pytest

from shoal.config import TasksConfig
from shoal.errors import UserError
from shoal.judge.addresses import Addresses, Rates
from shoal.judge.questions import Questions, read_secret
from shoal.judge.scoring import Scoring
from shoal.rollout import QuestionId
from shoal.swarm.addresses import address_of
from shoal.tasks import Tasks

QUESTION = QuestionId("gcd", "1", "c", 5, 0)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(TasksConfig(suite="pond"))


def test_connections_of_one_address_and_of_all() -> None:
    addresses = Addresses(Rates(connections=2), 3, Clock())
    assert [addresses.enter("a") for _ in range(3)] == [True, True, False]
    assert [addresses.enter(address) for address in "bc"] == [True, False]
    addresses.leave("a")
    assert addresses.enter("c")
    assert (addresses.open, addresses.cut) == (3, 2)


def test_who_asks_too_much_is_shut_out_longer_each_time() -> None:
    clock = Clock()
    addresses = Addresses(Rates(requests=10, shut=5), 100, clock)
    assert sum(addresses.request("a") for _ in range(50)) == 40
    assert not addresses.enter("a")
    assert addresses.enter("b")
    assert addresses.request("b")
    clock.now = 5.1
    assert addresses.enter("a")
    assert sum(addresses.request("a") for _ in range(100)) == 40
    clock.now = 5.1 + 9
    assert not addresses.request("a")
    assert not addresses.enter("a")
    clock.now = 5.1 + 10.1
    assert addresses.request("a")


def test_an_offence_costs_as_much_as_ten_requests() -> None:
    addresses = Addresses(Rates(requests=10), 100, Clock())
    for _ in range(4):
        assert addresses.request("a")
        addresses.offend("a")
    assert not addresses.request("a")


def test_behind_a_proxy_there_are_no_bounds_but_one() -> None:
    addresses = Addresses(Rates(connections=0, requests=1, newcomers=1), 500, Clock())
    assert sum(addresses.enter("a") for _ in range(1000)) == 500
    assert all(addresses.request("a") and addresses.newcomer("a") for _ in range(1000))


def test_new_keys_of_one_address() -> None:
    clock = Clock()
    addresses = Addresses(Rates(newcomers=6), 100, clock)
    assert sum(addresses.newcomer("a") for _ in range(20)) == 6
    assert addresses.newcomer("b")
    addresses.let_in("a")
    assert (addresses.is_known("a"), addresses.is_known("b")) == (True, False)
    clock.now = 10.0
    assert [addresses.newcomer("a") for _ in range(2)] == [True, False]


def test_memory_of_addresses_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.judge.addresses.ADDRESSES", 100)
    addresses = Addresses(Rates(), 10, Clock())
    for number in range(1000):
        if addresses.enter(str(number)):
            addresses.request(str(number))
            addresses.leave(str(number))
    assert len(addresses._visitors) == 100
    assert not addresses._connections


@pytest.mark.parametrize(
    ("host", "counted"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80::"),
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
    config = TasksConfig.model_validate({"tasks": [{"name": "gcd", "weight": 3}, {"name": "lcm", "weight": 1}]})
    questions = Questions(Tasks(config), b"s" * 32)
    labels = Counter(questions.draw(b"k" * 32, number)[0] for number in range(400))
    assert 260 < labels["gcd"] < 340


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


def test_a_slow_answer_holds_up_its_own_lane_alone() -> None:
    scorers: list[Slow] = []

    def make() -> Slow:
        scorers.append(Slow())
        return scorers[-1]

    scoring = Scoring(make)
    slow = [scoring.submit(QUESTION, "hang", trusted=False) for _ in range(3)]
    began = time.monotonic()
    assert [scoring.submit(QUESTION, "x", trusted=True).result(5) for _ in range(100)] == [(1.0, "")] * 100
    assert time.monotonic() - began < 4
    assert not any(future.done() for future in slow)
    scorers[1].released.set()
    assert [future.result(5) for future in slow] == [(0.0, "timeout")] * 3
    scoring.close()


def test_an_answer_waits_for_a_worker_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.judge.scoring.PAUSES", (0.01,))
    notes: list[str] = []
    scoring = Scoring(Slow, QUESTION, notes.append)
    assert scoring.submit(QUESTION, "die", trusted=True).result(5) == (1.0, "")
    assert notes == ["answers wait to be scored: no worker"]
    scoring.close()
