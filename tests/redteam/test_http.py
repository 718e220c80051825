"""Strangers without a token, over real sockets: `shoal watch`, `shoal human` and `shoal judge` go on serving people."""

from __future__ import annotations

import json
import re
import resource
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest
from judging import Node, served
from strangers import program
from windows import small_run

from shoal.judge.messages import encode

TOKEN = "0123456789abcdef"
WELCOME = f"Authorization: Bearer {TOKEN}\r\n"
GET = "GET /api/runs HTTP/1.1\r\nHost: 127.0.0.1\r\n"
SECONDS = 1.0
"""In which a person gets each page, whatever strangers do."""
MANY = 1000
"""Connections of one address."""
OTHERS = [f"127.0.0.{number}" for number in range(3, 29)]
"""Addresses with ten connections each."""
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


def connect(port: int, source: str = "127.0.0.1") -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), 20, (source, 0))


class Strangers:
    """Connections of many addresses that send the same and read nothing."""

    def __init__(self, port: int, data: bytes) -> None:
        self.port, self.data = port, data
        self.links: list[socket.socket] = []

    def come(self, source: str, count: int) -> None:
        for _ in range(count):
            with suppress(OSError):  # the server may cut it at once
                link = connect(self.port, source)
                self.links.append(link)
                link.sendall(self.data)

    def close(self) -> None:
        for link in self.links:
            link.close()


@contextmanager
def besieged(port: int, data: bytes) -> Iterator[Strangers]:
    strangers = Strangers(port, data)
    strangers.come("127.0.0.2", MANY)
    for source in OTHERS:
        strangers.come(source, 10)
    try:
        yield strangers
    finally:
        strangers.close()


def fetch(port: int, path: str, source: str = "127.0.0.1", token: bool = True) -> tuple[bytes, float]:
    """The first line of what is answered, on a connection of its own, and the seconds that it took."""
    began = time.monotonic()
    with connect(port, source) as link:
        words = WELCOME if token else ""
        link.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{words}Connection: close\r\n\r\n".encode())
        said = b""
        while part := link.recv(65536):
            said += part
    return said.partition(b"\r\n")[0], time.monotonic() - began


@contextmanager
def page_of(which: str, folder: Path, token: bool = True) -> Iterator[int]:
    """The port of `shoal watch` or `shoal human`, running."""
    (folder / "token").write_text(TOKEN)
    words: list[object] = ["--listen", "127.0.0.1:0", *(["--token-file", folder / "token"] if token else [])]
    if which == "watch":
        command = ["watch", "--serve", *words, small_run(folder / "run")]
    else:
        command = ["human", "--no-open", "--lan", "false", "--home", folder / "home", *words]
    with program(*command, home=folder, says="Ctrl-C") as running:
        [port] = re.findall(r"http://127.0.0.1:(\d+)/", running.said)
        fetch(int(port), "/")  # it is up
        yield int(port)


def is_served(ports: int, paths: list[str], source: str) -> None:
    for path in paths:
        status, seconds = fetch(ports, path, source)
        assert status == b"HTTP/1.1 200 OK", (path, source, status)
        assert seconds < SECONDS, (path, source)


@pytest.mark.parametrize("which", ["watch", "human", "judge"])
def test_who_may_come_is_served_whatever_strangers_hold_open(which: str, tmp_path: Path) -> None:
    paths = {"watch": ["/", "/api/runs"], "human": ["/", "/api/state"], "judge": ["/", "/health"]}[which]
    with ExitStack() as stack:
        if which == "judge":
            port = stack.enter_context(served(tmp_path)).port
        else:
            port = stack.enter_context(page_of(which, tmp_path))
        for name, data in ATTACKS.items():
            with besieged(port, data):
                for source in ("127.0.0.1", "127.0.0.99"):
                    print(name, source)
                    is_served(port, paths, source)
