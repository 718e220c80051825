"""What a judge's owner and its nodes see when something fails: no traceback, but what it is and what to do."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import shutil
import signal
import socket
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fakes import Parrot
from judging import served

from shoal.cli.flags import Parser
from shoal.config.tasks import TasksConfig
from shoal.errors import UserError
from shoal.identity.keys import Identity, name_of
from shoal.tasks import Tasks
from shoal_host.judge.command import add_arguments, command
from shoal_host.judge.judges import Judges
from shoal_host.judge.messages import Answer, Ask, Envelope, Receipt, Verdict, encode, open_envelope, seal
from shoal_host.judge.questions import Questions
from shoal_host.judge.records import FILE, Records
from shoal_host.judge.rules import Refused, Terms
from shoal_host.judge.scoring import Scoring
from shoal_host.judge.service import Service


def run(*words: str) -> int:
    parser = Parser(prog="shoal judge")
    add_arguments(parser)
    return command(parser.parse(words))


def test_a_port_in_use(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(
            UserError, match=rf"cannot listen at 127.0.0.1:{port}: .*; choose another address with --listen"
        ):
            run("--data", str(tmp_path / "judge"), "--listen", f"127.0.0.1:{port}")
    assert not (tmp_path / "judge").exists()


def test_a_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for folder in (tmp_path / "file", tmp_path / "file" / "judge"):
        with pytest.raises(UserError, match=f"cannot write {folder}"):
            Records(folder)


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    with pytest.raises(UserError, match=r"cannot write .*: Permission denied"):
        Records(tmp_path)


def test_records_that_are_none(tmp_path: Path) -> None:
    (tmp_path / FILE).write_bytes(b"something else" * 1000)
    with pytest.raises(UserError, match="file is not a database"):
        Records(tmp_path)


@pytest.mark.network
@pytest.mark.slow
def test_ctrl_c_ends_it_quietly_with_requests_under_way(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    requests = (
        b"",
        b"GET / HTTP/1.1\r\nhost: j\r\n\r\n",
        b"POST /ask HTTP/1.1\r\ncontent-length: 9\r\nhost: j\r\n\r\n",
    )
    with served(tmp_path) as judge, contextlib.ExitStack() as stack:
        for data in requests:
            stack.enter_context(socket.create_connection(("127.0.0.1", judge.port))).sendall(data)
        judge.process.send_signal(signal.SIGINT)
        time.sleep(0.3)
        judge.process.send_signal(signal.SIGINT)  # impatience changes nothing
        assert judge.process.wait(60) == 0
    assert capfd.readouterr().err == ""


class Scorer:
    """Everything is right."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()

    def score(self, items: list[Any]) -> list[list[float]]:
        return [[1.0] for _ in items]

    def close(self) -> None: ...


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    clock = time.time
    records, scoring = Records(tmp_path), Scoring(Scorer())  # type: ignore[arg-type]
    questions = Questions(Tasks(TasksConfig(suite="pond", only=["chain_sum"])), Identity.generate())
    yield Service(Identity.generate(), questions, records, scoring, Terms(work=0), clock)
    scoring.close()
    records.close()


class Talker:
    """A node that speaks to a service without a network between them."""

    def __init__(self, service: Service) -> None:
        self.service, self.identity = service, Identity.generate()

    async def ask(self, round: int) -> Envelope:
        given: dict[str, Any] = {"nonce": secrets.token_bytes(16), "time": time.time(), "model": "m", "in_swarm": True}
        ask = Ask(judge=self.service.identity.public, key=self.identity.public, round=round, **given)
        return await self.service.ask(encode(seal(ask, self.identity)), "192.0.2.1")

    async def answer(self, posed: Envelope, text: str) -> Verdict | Receipt:
        answer = Answer(judge=self.service.identity.public, key=self.identity.public, posed=posed.hash, text=text)
        reply = await self.service.answer(encode(seal(answer, self.identity)), "192.0.2.1")
        return open_envelope(encode(reply), Verdict, Receipt)[0]


def test_low_on_disk_it_asks_nothing_new_and_keeps_answers(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def go() -> None:
        async with service.running():
            node, other = Talker(service), Talker(service)
            posed = await node.ask(1)
            monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=1000))
            await asyncio.sleep(1.5)  # it looks every second
            assert service.state()["full"]
            with pytest.raises(Refused, match="disk is full") as caught:
                await other.ask(1)
            assert (caught.value.reason, caught.value.retry_after) == ("full", 60.0)
            assert (await node.answer(posed, "1")).score == 1.0

    asyncio.run(go())


def test_on_a_full_disk_nothing_is_acknowledged_and_all_may_come_again(service: Service) -> None:
    def pages(most: int) -> None:
        service.records._writer.execute(f"PRAGMA max_page_count = {most}")  # not below what there is

    async def go() -> None:
        async with service.running():
            node, other, text = Talker(service), Talker(service), "1" * 16_000
            posed = await node.ask(1)
            pages(1)
            with pytest.raises(Refused, match="the answer could not be stored: database or disk is full") as caught:
                await node.answer(posed, text)
            assert (caught.value.reason, caught.value.retry_after) == ("busy", 2.0)
            pages(2**30)
            assert (await node.answer(posed, text)).score == 1.0
            await other.ask(1)

    asyncio.run(go())
    with sqlite3.connect(service.records.path) as kept:
        assert kept.execute("SELECT count(*) FROM answers").fetchone() == (1,)


def test_an_answer_whose_scoring_fails_has_no_score(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failed(*_: object) -> tuple[float, str]:
        raise RuntimeError("a fault of the judge's own")

    monkeypatch.setattr(service.scoring, "score", failed)

    async def go() -> None:
        async with service.running():
            node = Talker(service)
            posed = await node.ask(1)
            for _ in range(2):
                assert isinstance(await node.answer(posed, "1"), Receipt)

    asyncio.run(go())


def test_judges_without_a_network_says_why_and_costs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def down(*_: object, **__: object) -> None:
        raise OSError(101, "Network is unreachable")

    monkeypatch.setattr("socket.getaddrinfo", down)
    monkeypatch.setattr("socket.create_connection", down)
    now, key = [0.0], bytes(32)
    judges = Judges([f"http://127.0.0.1:7460#{key.hex()}"], Identity.generate(), patience=5.0, clock=lambda: now[0])
    policy = Parrot("2")
    told = []
    for round in range(4):
        assert judges.ask(policy, round, 0) == {"judge/pass@1": None, "judge/questions": 0}
        told.append(judges.trouble)
        now[0] += 4.0
    assert told[0] == f"judge {name_of(key)}: cannot be reached: Network is unreachable; asked again in 10 s"
    assert told[2] == told[0]  # it is left alone, and what is said stays the same
    assert told[3].endswith("asked again in 20 s")
    assert policy.seeds == []
