"""A judge as others see it: over real sockets, in a process of its own."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from judging import Node, Served, reason, served

from shoal.config.tasks import TasksConfig
from shoal.identity.keys import Identity
from shoal.sandbox.verifier import Verifier
from shoal.tasks import Tasks
from shoal_host.judge.messages import MAX_BYTES, Posed, Verdict, encode, is_signed, open_envelope, work_of

pytestmark = [pytest.mark.network, pytest.mark.slow]
TASKS = TasksConfig(suite="pond", only=["chain_sum", "spell_backward"])


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    rates = ("--address-newcomers", "1000000", "--newcomers", "1000000")
    with served(tmp_path_factory.mktemp("judge"), *rates) as judge:
        yield judge


@pytest.fixture(scope="module")
def tasks() -> Tasks:
    return Tasks(TASKS)


def right(tasks: Tasks, posed: Posed) -> str:
    """The answer, from the question's text alone."""
    text = posed.prompt[-1].content
    if posed.task == "spell_backward":
        return text.split()[-1][::-1]
    left, sign, right = text.removesuffix("=").split()[-3:]
    return str(int(left) + int(right) * (1 if sign == "+" else -1))


def test_a_right_answer_counts_and_can_be_checked_by_anybody(judge: Served, tasks: Tasks) -> None:
    node = Node(judge)
    ask = node.ask(7, model="guppy", in_swarm=False)
    response = judge.post("/ask", encode(ask))
    posed, question = open_envelope(response.content, Posed)
    assert is_signed(question, judge.key)
    assert (posed.ask, posed.number, posed.round, posed.key) == (ask.hash, 0, 7, node.identity.public)
    assert posed.expires - posed.asked == pytest.approx(120)
    answer = node.answer(question.hash, right(tasks, posed))
    node.verdict(answer)
    response = judge.post("/answer", encode(answer))
    verdict, envelope = open_envelope(response.content, Verdict)
    assert is_signed(envelope, judge.key)
    assert (verdict.score, verdict.answer, verdict.round, verdict.model) == (1.0, answer.hash, 7, "guppy")
    made_again = tasks.question(verdict.question)
    assert made_again.prompt == posed.prompt
    assert tasks.is_held_out(made_again)
    with Verifier(TASKS) as verifier:
        assert verifier.score([(verdict.question, [right(tasks, posed)])]) == [[1.0]]
    [row] = [row for row in judge.get("/leaderboard").json() if row["key"] == node.identity.id]
    assert (row["pass@1"], row["questions"], row["in_swarm"], row["model"]) == (1.0, 1, False, "guppy")


def test_a_wrong_answer_and_the_next_question(judge: Served) -> None:
    node = Node(judge)
    for round in range(3):
        posed, hash = node.posed(round)
        assert posed.number == round
        assert node.verdict(node.answer(hash, "nothing")).score == 0.0


def test_lost_replies_can_be_asked_for_again(judge: Served) -> None:
    node = Node(judge)
    ask = encode(node.ask(1))
    replies = {judge.post("/ask", ask).content for _ in range(3)}
    assert len(replies) == 1
    _, envelope = open_envelope(replies.pop(), Posed)
    answer = node.answer(envelope.hash)
    first = node.verdict(answer)
    assert node.verdict(answer) == first
    assert reason(judge.post("/ask", ask)) == "round"


def test_the_same_ask_at_the_same_time_is_one_question(judge: Served) -> None:
    node = Node(judge)
    ask = encode(node.ask(1))
    replies: list[bytes] = []
    threads = [threading.Thread(target=lambda: replies.append(judge.post("/ask", ask).content)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(replies) == 8
    assert len(set(replies)) == 1


def test_of_two_asks_at_the_same_time_one_is_granted(judge: Served) -> None:
    node = Node(judge)
    asks = [encode(node.ask(round)) for round in (1, 2, 3, 4)]
    found: list[str] = []

    def say(data: bytes) -> None:
        response = judge.post("/ask", data)
        found.append("posed" if response.status_code == 200 else reason(response))

    threads = [threading.Thread(target=say, args=(data,)) for data in asks]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(found) == ["open", "open", "open", "posed"]


def test_refusals_of_an_ask(judge: Served) -> None:
    node, other = Node(judge), Identity.generate()

    def said(envelope: object) -> tuple[int, str]:
        response = judge.post("/ask", encode(envelope))  # type: ignore[arg-type]
        return response.status_code, reason(response)

    assert said(node.ask(1, judge=other.public)) == (403, "judge")
    assert said(node.ask(1, time=time.time() - 1000)) == (409, "clock")
    assert said(node.ask(1, signer=other)) == (403, "signature")
    assert said(node.answer(bytes(32))) == (400, "malformed")
    node.posed(5)
    assert said(node.ask(6)) == (409, "open")
    assert judge.post("/ask", b"nonsense").status_code == 400
    assert reason(judge.post("/ask", bytes(MAX_BYTES + 1))) == "size"


def test_refusals_of_an_answer(judge: Served) -> None:
    node, other = Node(judge), Node(judge)

    def said(envelope: object) -> tuple[int, str]:
        response = judge.post("/answer", encode(envelope))  # type: ignore[arg-type]
        return response.status_code, reason(response)

    assert said(node.answer(bytes(32))) == (404, "unknown")
    _, hash = node.posed(5)
    assert said(other.answer(hash)) == (404, "unknown")  # another's question
    assert said(node.answer(hash, signer=other.identity)) == (403, "signature")
    assert said(node.answer(hash, judge=other.identity.public)) == (403, "judge")
    node.verdict(node.answer(hash, "1"))
    assert said(node.answer(hash, "2")) == (409, "answered")
    assert said(node.ask(5)) == (400, "malformed")
    response = judge.post("/ask", encode(node.ask(5)))
    assert reason(response) == "round"


def test_what_is_not_there(judge: Served) -> None:
    assert judge.get("/nothing").status_code == 404
    assert judge.get("/ask").status_code == 405
    card = judge.get("/").json()
    assert (card["judge"], card["tasks"], card["held_out"]) == (judge.key.hex(), ["chain_sum", "spell_backward"], 0.2)


@pytest.mark.slow
def test_time_runs_out(tmp_path: Path) -> None:
    with served(tmp_path, "--limit", "1.0") as judge:
        node = Node(judge)
        _, hash = node.posed(1)
        time.sleep(1.2)
        assert reason(judge.post("/answer", encode(node.answer(hash)))) == "late"
        deadline = time.monotonic() + 20
        while judge.get("/health").json()["lapsed"] != 1:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert node.posed(2)[0].number == 1


def test_new_keys_must_work_and_come_one_by_one(tmp_path: Path) -> None:
    with served(tmp_path, "--work", "12", "--address-newcomers", "1") as judge:
        node = Node(judge)
        response = judge.post("/ask", encode(node.ask(1, work=2**52)))
        assert (response.status_code, reason(response)) == (403, "work")
        node.posed(1, work=work_of(judge.key, node.identity.public, 12))
        other = Node(judge)
        response = judge.post("/ask", encode(other.ask(1, work=work_of(judge.key, other.identity.public, 12))))
        assert (response.status_code, reason(response)) == (429, "newcomers")
        assert int(response.headers["retry-after"]) > 0


def connected(judge: Served, data: bytes) -> socket.socket:
    line = socket.create_connection(("127.0.0.1", judge.port), timeout=20)
    line.sendall(data)
    return line


def ended(line: socket.socket) -> float:
    """Seconds until the other end has cut it."""
    began = time.monotonic()
    try:
        while line.recv(65536):
            pass
    except ConnectionError:
        pass
    return time.monotonic() - began


@pytest.mark.slow
def test_clients_that_hold_on_hold_up_nobody(tmp_path: Path) -> None:
    """Nothing at all, half of the headers, a body that does not come, which is over in time."""
    with served(tmp_path) as judge:
        post = b"POST /ask HTTP/1.1\r\nhost: j\r\ncontent-length: 100\r\n\r\n"
        lines = [connected(judge, data) for data in (b"", b"POST /ask HT", b"x") for _ in range(100)]
        began = time.monotonic()
        with connected(judge, post) as line:
            assert b" 408 " in line.recv(65536)
        assert time.monotonic() - began < 10
        assert judge.get("/health").status_code == 200
        for line in lines:
            line.close()


@pytest.mark.slow
def test_headers_are_bounded(judge: Served) -> None:
    line = connected(judge, b"GET / HTTP/1.1\r\nx: " + b"x" * 100_000)
    assert ended(line) < 5


def test_a_hostile_text_scores_nothing_and_harms_nobody(judge: Served) -> None:
    for text in ("__import__('os')._exit(1)", "9" * 16_000, "\0" * 100, "(" * 16_000, ""):
        node = Node(judge)
        _, hash = node.posed(1)
        assert node.verdict(node.answer(hash, text)).score == 0.0


def test_it_stops_when_told_and_goes_on_with_its_key(tmp_path: Path) -> None:
    with served(tmp_path) as judge:
        key = judge.key
        node = Node(judge)
        node.posed(1)
        assert judge.stop() == 0
        judge.start()
        assert judge.key == key
        assert judge.get("/health").json()["under_way"] == 1
