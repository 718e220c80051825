"""A judge that is killed in the midst of its work: nothing acknowledged is lost, and nothing is there twice."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from pathlib import Path

import httpx2
import pytest
from judging import Node, Served, reason, rows, served

from shoal_host.judge import reports
from shoal_host.judge.messages import Posed, Receipt, Verdict, encode, open_envelope
from shoal_host.judge.records import FILE

pytestmark = [pytest.mark.network, pytest.mark.slow]
NODES, KILLS = 6, 3
FLAGS = ("--limit", "30")


class Talker(threading.Thread):
    """A node that asks and answers without a pause, keeps what it was told, and says the same again when the line
    breaks."""

    def __init__(self, judge: Served, stop: threading.Event, text: str) -> None:
        super().__init__(daemon=True)
        self.node, self.stop, self.text = Node(judge), stop, text
        self.posed: dict[int, bytes] = {}
        self.kept: set[int] = set()
        self.scores: dict[int, float] = {}
        self.odd: list[str] = []

    def run(self) -> None:
        round = 0
        while not self.stop.is_set():
            round += 1
            if (data := self._say("/ask", encode(self.node.ask(round)))) is None:
                return
            _, envelope = open_envelope(data, Posed)
            self.posed[round] = envelope.hash
            answer = encode(self.node.answer(envelope.hash, self.text))
            while round not in self.scores:
                if (data := self._say("/answer", answer)) is None:
                    return
                reply, _ = open_envelope(data, Verdict, Receipt)
                self.kept.add(round)
                if isinstance(reply, Verdict):
                    self.scores[round] = reply.score

    def _say(self, path: str, body: bytes) -> bytes | None:
        while not self.stop.is_set():
            with contextlib.suppress(httpx2.TransportError):
                response = self.node.judge.post(path, body)
                if response.status_code == 200:
                    return response.content
                self.odd.append(f"{path} {reason(response)}")
                return None
            time.sleep(0.05)
        return None


def _until_scores(talkers: list[Talker], number: int) -> None:
    """Until the judge has given so many more."""
    wanted = number + sum(len(talker.scores) for talker in talkers)
    deadline = time.monotonic() + 60
    while sum(len(talker.scores) for talker in talkers) < wanted:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_killed_in_the_midst(tmp_path: Path) -> None:
    chance = random.Random(5)
    with served(tmp_path, *FLAGS) as judge:
        stop = threading.Event()
        talkers = [Talker(judge, stop, str(number)) for number in range(NODES)]
        for talker in talkers:
            talker.start()
        for _ in range(KILLS):
            time.sleep(1 + chance.random())
            judge.kill()
            judge.start()
        time.sleep(1)
        stop.set()
        judge.kill()
        for talker in talkers:
            talker.join(30)
        judge.start()  # scores what was kept and not scored
        deadline = time.monotonic() + 60
        while judge.get("/health").json()["waiting_for_scores"]:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert judge.stop() == 0
    assert [odd for talker in talkers for odd in talker.odd] == []
    found = {(row["key"], row["round"]): row for row in rows(tmp_path / FILE)}
    with sqlite3.connect(tmp_path / FILE) as records:
        [[asks, kept]] = records.execute("SELECT (SELECT count(*) FROM asks), (SELECT count(*) FROM answers)")
        assert records.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sum(len(talker.posed) for talker in talkers) <= asks
    assert sum(len(talker.kept) for talker in talkers) <= kept
    for talker in talkers:
        for round in talker.kept:
            row = found[talker.node.identity.id, round]
            assert row["outcome"] == "scored"
            assert row["score"] == talker.scores.get(round, row["score"])
        numbers = [row["number"] for key, row in found.items() if key[0] == talker.node.identity.id]
        assert numbers == sorted(set(numbers))


def test_after_a_kill_replays_are_refused_and_questions_the_same(tmp_path: Path) -> None:
    with served(tmp_path, *FLAGS) as judge:
        done, waiting = Node(judge), Node(judge)
        asked = encode(done.ask(3))
        _, envelope = open_envelope(judge.post("/ask", asked).content, Posed)
        answer = done.answer(envelope.hash, "1")
        verdict = done.verdict(answer)
        pending = encode(waiting.ask(9))
        question = judge.post("/ask", pending).content
        judge.kill()
        judge.start()
        assert reason(judge.post("/ask", asked)) == "round"
        assert done.verdict(answer) == verdict
        assert reason(judge.post("/answer", encode(done.answer(envelope.hash, "2")))) == "answered"
        assert judge.post("/ask", pending).content == question
        assert reason(judge.post("/ask", encode(waiting.ask(10)))) == "open"
        _, envelope = open_envelope(question, Posed)
        waiting.verdict(waiting.answer(envelope.hash))
        assert done.posed(4)[0].number == 1


def test_what_was_open_when_the_judge_went_down_is_void(tmp_path: Path) -> None:
    with served(tmp_path, "--limit", "2") as judge:
        node = Node(judge)
        node.posed(1)
        judge.kill()
        judge.start()
        deadline = time.monotonic() + 30
        while not judge.get("/health").json()["void"]:
            assert time.monotonic() < deadline
            time.sleep(0.2)
        assert node.posed(2)[0].number == 1
        assert judge.stop() == 0
    [row] = reports.leaderboard_of(tmp_path / FILE)
    assert (row["pass@1"], row["void"], row["questions"]) == (None, 1, 0)
