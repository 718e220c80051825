"""Strangers against a judge in a process of its own: a thousand identities, replays, and bodies that do not come.

A proxy on the same machine says whose request it is, so one test speaks for many addresses."""

from __future__ import annotations

import contextlib
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest
from judging import Node, Served, reason, served

from shoal_host.judge.messages import Posed, Verdict, encode, open_envelope
from shoal_host.judge.records import FILE

pytestmark = [pytest.mark.network, pytest.mark.slow]
IDENTITIES = 1000


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(tmp_path_factory.mktemp("judge")) as judge:
        yield judge


def post(client: httpx2.Client, judge: Served, path: str, body: bytes, address: str) -> httpx2.Response:
    return client.post(judge.url + path, content=body, headers={"X-Forwarded-For": address})


def test_a_thousand_identities_of_one_address_keep_nobody_out(judge: Served) -> None:
    said: Counter[str] = Counter()
    with httpx2.Client(trust_env=False, timeout=30) as client:
        for _ in range(IDENTITIES):
            response = post(client, judge, "/ask", encode(Node(judge).ask(1)), "192.0.2.1")
            said["posed" if response.status_code == 200 else reason(response)] += 1
        assert set(said) == {"posed", "newcomers"}
        assert said["posed"] < 120, "sixty at once, and one a second"
        honest = Node(judge)
        asked = post(client, judge, "/ask", encode(honest.ask(1)), "192.0.2.2")
        assert asked.status_code == 200, reason(asked)
        _, posed = open_envelope(asked.content, Posed)
        answer = honest.answer(posed.hash)
        assert post(client, judge, "/answer", encode(answer), "192.0.2.2").status_code == 200


def test_whatever_is_replayed_from_anywhere_changes_nothing(judge: Served) -> None:
    node = Node(judge)
    ask = encode(node.ask(1))
    with httpx2.Client(trust_env=False, timeout=30) as client:
        replies = {post(client, judge, "/ask", ask, f"198.51.100.{n}").content for n in range(100)}
        [reply] = replies
        posed, envelope = open_envelope(reply, Posed)
        answer = encode(node.answer(envelope.hash))
        verdict = node.verdict(node.answer(envelope.hash))
        again = {post(client, judge, "/answer", answer, f"198.51.100.{n}").content for n in range(100)}
        assert [open_envelope(each, Verdict)[0] for each in again] == [verdict]
        assert reason(post(client, judge, "/ask", ask, "198.51.100.1")) == "round"
    with contextlib.closing(sqlite3.connect(judge.folder / FILE)) as records:
        where = "FROM asks a JOIN nodes n ON n.id = a.node WHERE n.key = ?"
        assert records.execute(f"SELECT count(*) {where}", (node.identity.public,)).fetchone() == (1,)
    assert posed.number == 0


def test_what_was_said_to_one_judge_is_worth_nothing_to_another(judge: Served, tmp_path: Path) -> None:
    node = Node(judge)
    ask = encode(node.ask(1))
    assert judge.post("/ask", ask).status_code == 200
    with served(tmp_path) as other:
        assert reason(other.post("/ask", ask)) == "judge"


def test_bodies_that_come_a_byte_at_a_time_hold_up_nobody(judge: Served) -> None:
    head = b"POST /ask HTTP/1.1\r\nhost: j\r\nx-forwarded-for: 203.0.113.9\r\ncontent-length: 5000\r\n\r\n"
    lines = [socket.create_connection(("127.0.0.1", judge.port), timeout=20) for _ in range(200)]
    for line in lines:
        line.sendall(head)
    began, honest = time.monotonic(), Node(judge)
    served_in = []
    with httpx2.Client(trust_env=False, timeout=30) as client:
        for round in range(1, 6):
            for line in lines:
                with contextlib.suppress(OSError):
                    line.sendall(b"x")
            at = time.monotonic()
            asked = post(client, judge, "/ask", encode(honest.ask(round)), "203.0.113.1")
            assert asked.status_code == 200, reason(asked)
            _, posed = open_envelope(asked.content, Posed)
            reply = post(client, judge, "/answer", encode(honest.answer(posed.hash)), "203.0.113.1")
            assert reply.status_code == 200
            served_in.append(time.monotonic() - at)
    cut = 0
    for line in lines:
        with contextlib.suppress(OSError):
            cut += b" 408 " in line.recv(65536)
        line.close()
    print(
        f" [{cut} of 200 cut after {time.monotonic() - began:.1f} s; an exchange took {max(served_in):.2f} s at most]"
    )
    assert cut == 200
