"""Strangers without a token, over real sockets: `shoal watch`, `shoal human` and `shoal judge` go on serving people."""

from __future__ import annotations

import os
import re
import resource
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import pytest
from judging import Node, Served, served
from strangers import program
from watched import small_run

from shoal_host.judge.messages import encode

TOKEN = "0123456789abcdef"
WELCOME = f"Authorization: Bearer {TOKEN}\r\n"
SECONDS = 2.0
"""Of the server's processor in which a person gets each page, whatever strangers do. On a quiet machine it takes 2 to
300 ms of wall time; a busy one doubles the processor time too."""
MANY = 300
"""Connections of strangers: fewer than a server takes at a time. More are the business of a proxy."""
ATTACKS: dict[str, bytes] = {
    "silence": b"",
    "half of the headers": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ",
    "a body that does not come": b"POST /api/skip HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 1000\r\n\r\n{",
    "chunks without end": b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n",
    "a wait for 100": b"POST /ask HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    "requests without a token": b"GET /api/state HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n",
    "pipelines": b"GET /enter HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 40,
    "HTTP/1.0": b"GET /enter HTTP/1.0\r\nHost: 127.0.0.1\r\nConnection: keep-alive\r\n\r\n",
    "a websocket": b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n",
}


@pytest.fixture(scope="module", autouse=True)
def _files() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 20)


@contextmanager
def besieged(port: int, data: bytes) -> Iterator[None]:
    """Strangers that send this and read nothing."""
    links = []
    for _ in range(MANY):
        with suppress(OSError):
            links.append(connect(port))
            links[-1].sendall(data)
    try:
        yield
    finally:
        for link in links:
            link.close()


def fetch(port: int, path: str) -> tuple[bytes, float]:
    """The first line of what is answered, on a connection of its own, and the seconds that it took."""
    began = time.monotonic()
    with connect(port) as link:
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{WELCOME}Connection: close\r\n\r\n".encode())
        said = b""
        while part := link.recv(65536):
            said += part
    return said.partition(b"\r\n")[0], time.monotonic() - began


@dataclass(frozen=True)
class Page:
    """A server, running."""

    port: int
    process: int

    def used(self) -> float:
        """Seconds of processor that it has had."""
        fields = Path(f"/proc/{self.process}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def serves(self, path: str) -> None:
        before = self.used()
        status, seconds = fetch(self.port, path)
        assert status == b"HTTP/1.1 200 OK", (path, status)
        assert self.used() - before < SECONDS, path
        assert seconds < 20, path


@contextmanager
def page_of(which: str, folder: Path) -> Iterator[Page]:
    """`shoal watch`, `human` or `judge`."""
    (folder / "token").write_text(TOKEN)
    words: list[object] = ["--listen", "127.0.0.1:0", "--token-file", folder / "token"]
    commands = {
        "watch": ["watch", "--serve", *words, small_run(folder / "run")],
        "human": ["human", "--no-open", "--home", folder / "home", *words],
    }
    if which == "judge":
        with served(folder) as judge:
            yield Page(judge.port, judge.process.pid)
        return
    with program(*commands[which], home=folder, says="Ctrl-C") as running:
        [port] = re.findall(r"http://127.0.0.1:(\d+)/", running.said)
        fetch(int(port), "/")  # it is up
        yield Page(int(port), running.process.pid)


PATHS = {"watch": ["/", "/api/runs"], "human": ["/", "/api/state"], "judge": ["/", "/health"]}


@pytest.mark.parametrize("which", PATHS)
def test_who_may_come_is_served_whatever_strangers_hold_open(which: str, tmp_path: Path) -> None:
    with page_of(which, tmp_path) as page:
        for data in list(ATTACKS.values())[: None if which == "watch" else 3]:  # the same code serves all three
            with besieged(page.port, data):
                for path in PATHS[which]:
                    page.serves(path)


def test_nothing_that_is_got_changes_the_journal(tmp_path: Path) -> None:
    paths = ("question", "question?want=gcd&n=64", "skip", "answer", "state", "journal")
    home = tmp_path / "home"

    def kept() -> dict[str, bytes]:
        return {file.name: file.read_bytes() for file in home.iterdir() if file.suffix != ".sqlite-shm"}

    with page_of("human", tmp_path) as page:
        before = kept()
        for method in ("GET", "HEAD", "OPTIONS"):
            for path in paths:
                with connect(page.port) as link:
                    words = f"{method} /api/{path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{WELCOME}Connection: close\r\n\r\n"
                    link.sendall(words.encode())
                    while link.recv(65536):
                        pass
        assert kept() == before


class From:
    """A judge as nodes behind one address reach it, through a proxy on the judge's machine."""

    def __init__(self, judge: Served, address: str) -> None:
        self.key, self.url = judge.key, judge.url
        self._http = httpx2.Client(headers={"X-Forwarded-For": address}, timeout=60, trust_env=False)

    def post(self, path: str, body: bytes) -> httpx2.Response:
        return self._http.post(self.url + path, content=body)


def test_slow_answers_of_two_addresses_hold_up_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without turns each of these answers costs five seconds of everybody's: two, and a new process that scores."""
    few = ("--suite", "paper", "--task", "propositional_logic", "--work", "0")
    monkeypatch.setattr("judging.FAST", few)
    slow = f"<answer>{'(' * 400}{'P' * 15_000}{')' * 400}</answer>"
    with served(tmp_path) as judge, ThreadPoolExecutor(8) as pool:

        def answer(source: str) -> None:
            node = Node(From(judge, source))
            _, question = node.posed(1)
            node.judge.post("/answer", encode(node.answer(question, slow)))

        list(pool.map(answer, ["192.0.2.2", "192.0.2.3"] * 8))
        honest = Node(From(judge, "192.0.2.4"))
        began = time.monotonic()
        _, question = honest.posed(1)
        honest.verdict(honest.answer(question, "<answer>P</answer>"))
        seconds = time.monotonic() - began
        assert seconds < 25  # 16 slow answers are 80 seconds' work
