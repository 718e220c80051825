"""The smaller parts of a judge: which question comes next, and whose turn it is."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter

import pytest

from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.rollout import QuestionId
from shoal.tasks import Tasks
from shoal_host.addresses import address_of
from shoal_host.judge.questions import Questions
from shoal_host.judge.scoring import Scoring, Turns

JUDGE = Identity.generate()
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
    questions = Questions(tasks, JUDGE)
    drawn = [questions.draw(b"k" * 32, number) for number in range(50)]
    assert all(tasks.is_held_out(question) for _, question in drawn)
    assert drawn == [Questions(tasks, JUDGE).draw(b"k" * 32, number) for number in range(50)]
    assert len({question.id.seed for _, question in drawn}) == 50


def test_nobody_knows_the_next_question_without_the_private_key(tasks: Tasks) -> None:
    seeds = {
        Questions(tasks, judge).draw(key * 32, number)[1].id.seed
        for judge in (JUDGE, Identity.generate())
        for key in (b"k", b"l")
        for number in range(5)
    }
    assert len(seeds) == 20


def test_tasks_come_by_their_weights() -> None:
    config = TasksConfig.model_validate({"sources": [{"name": "gcd", "weight": 3}, {"name": "lcm", "weight": 1}]})
    questions = Questions(Tasks(config), JUDGE)
    labels = Counter(questions.draw(b"k" * 32, number)[0] for number in range(400))
    assert 260 < labels["gcd"] < 340


def test_a_task_without_held_out_questions_is_refused(tasks: Tasks, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tasks, "held_out", lambda *_: {"gcd": []})
    with pytest.raises(UserError, match="gcd"):
        Questions(tasks, JUDGE)


class Failing:
    """A verifier that has no worker at first, and says of "hang" that it took too long."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.starts = 0

    def score(self, items: list[tuple[QuestionId, list[str]]]) -> list[list[float]]:
        self.starts += 1
        if self.starts == 1:
            raise UserError("no worker")
        [(_, [text])] = items
        self.failures["timeout"] += text == "hang"
        return [[float(text != "hang")]]

    def close(self) -> None: ...


def test_an_answer_waits_for_a_worker_as_long_as_it_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal_host.judge.scoring.PAUSE", 0.01)
    notes: list[str] = []
    scoring = Scoring(Failing(), notes.append)  # type: ignore[arg-type]
    assert asyncio.run(scoring.score(QUESTION, "x", "a")) == (1.0, "")
    assert notes == ["answers wait to be scored: no worker"]
    assert asyncio.run(scoring.score(QUESTION, "hang", "a")) == (0.0, "timeout")
    assert asyncio.run(scoring.score(QUESTION, "x", "a")) == (1.0, "")


class Deeds:
    """Pieces of work that go on when they are told, and note whose they were."""

    def __init__(self) -> None:
        self.turns, self.done, self.go = Turns(), list[str](), asyncio.Event()

    async def one(self, party: str) -> None:
        async with self.turns.of(party):
            await self.go.wait()
            self.done.append(party)


async def waiting(deeds: Deeds, *parties: str) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(deeds.one(party)) for party in parties]
    await asyncio.sleep(0)
    return tasks


@pytest.mark.parametrize("hostile", [1, 2, 8])
def test_whoever_has_much_work_waits_and_a_newcomer_does_not(hostile: int) -> None:
    async def go() -> None:
        deeds = Deeds()
        tasks = await waiting(deeds, *(f"slow {number % hostile}" for number in range(100)))
        tasks += await waiting(deeds, *["quick"] * 10)
        assert (deeds.turns.waiting("quick"), deeds.turns.waiting("nobody")) == (10, 0)
        deeds.go.set()
        await asyncio.gather(*tasks)
        places = [place for place, party in enumerate(deeds.done) if party == "quick"]
        assert places[0] <= hostile  # one of each that came before
        assert all(later - earlier <= hostile + 1 for earlier, later in itertools.pairwise(places))
        assert deeds.turns.waiting("quick") == 0
        assert not deeds.turns._parties

    asyncio.run(go())


def test_whoever_gives_up_or_fails_leaves_its_place() -> None:
    async def go() -> None:
        deeds = Deeds()
        held, given_up, last = await waiting(deeds, "a", "b", "c")
        given_up.cancel()
        deeds.go.set()
        await asyncio.gather(held, last)
        with pytest.raises(ZeroDivisionError):
            async with deeds.turns.of("a"):
                raise ZeroDivisionError
        await deeds.one("a")
        assert deeds.done == ["a", "c", "a"]
        assert not deeds.turns._parties

    asyncio.run(go())
