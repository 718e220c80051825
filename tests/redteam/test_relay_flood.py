"""One address against a relay: 20,000 declarations at once, and all of its connections. Real bytes, a real relay."""

from __future__ import annotations

import contextlib
import os
import resource
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from test_network import Link, Who, free_port, until

pytestmark = pytest.mark.network

TESTS = Path(__file__).parents[1] / "integration"
NUMBER = 20_000
HONEST = """
import sys, time
from test_network import Link
ada, bob = (Link(name, connect=[sys.argv[1]]) for name in ("ada", "bob"))
for round in range(10_000):
    ada.tell(round)
    print(max(bob.rounds_of(ada), default=-1), flush=True)
    time.sleep(0.1)
"""
Declaration = Callable[[int], bytes]


def number(value: int) -> bytes:
    low, value = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(value) if value else bytes([low])


def key(text: str) -> bytes:
    """A key expression in full."""
    return b"\0" + number(len(text)) + text.encode()


def own(i: int) -> bytes:
    return key(f"shoal/lagoon/open/rollouts/abc/{i:064x}")


def declared(kind: int, i: int, name: bytes) -> bytes:
    return bytes([0x1E, kind | 0x20]) + number(i + 1) + name


def interest(i: int, name: bytes, what: int = 3) -> bytes:
    return b"\x79" + number(i + 1) + bytes([what | 0x30]) + name


def query(i: int, name: bytes) -> bytes:
    return b"\x3c" + number(i + 1) + name + b"\x03"


def message(i: int) -> bytes:
    return b"\x3d" + own(i) + b"\x01\x01x"


FLOODS: dict[str, Declaration] = {
    "publishers": lambda i: interest(i, own(i)),
    "publishers of patterns": lambda i: interest(i, key(f"shoal/**/a$*/b{i}$*")),
    "subscribers": lambda i: declared(2, i, own(i)),
    "subscribers to patterns": lambda i: declared(2, i, key(f"shoal/**/a{i}/**")),
    "queryables": lambda i: declared(4, i, own(i)),
    "one number for all": lambda i: declared(2, 1, own(i)),
    "who watches presence": lambda i: interest(i, own(i), 8),
    "names": lambda i: declared(0, i, own(i)),
    "names of names": lambda i: bytes([0x1E, 0x20]) + number(i + 1) + number(i) + b"\x3c" + b"x/" * 30,
    "queries": lambda i: query(i, own(i)),
    "interest of a moment": lambda i: b"\x39" + number(i + 1) + b"\x38" + own(i),
    "messages": message,
    "presence": lambda i: declared(6, i, key(f"shoal/lagoon/open/peers/{i % 4096:03x}/{i:064x}")),
}


class Session:
    """A session with a relay, by its bytes."""

    def __init__(self, port: int, source: str) -> None:
        self.link = socket.create_connection(("127.0.0.1", port), 10, (source, 0))
        self.say(b"\x01\x09\xf2" + os.urandom(16))
        answer = self.hear()
        at = 3 + 1 + (answer[2] >> 4) + (3 if answer[0] & 0x40 else 0)
        size = answer[at] & 0x7F | (answer[at + 1] << 7 if answer[at] & 0x80 else 0)
        at += 2 if answer[at] & 0x80 else 1
        self.say(b"\x42" + number(3600) + b"\0" + number(size) + answer[at : at + size])
        assert self.hear()[0] & 0x1F == 2
        self.frames = 0

    def say(self, batch: bytes) -> None:
        self.link.sendall(len(batch).to_bytes(2, "little") + batch)

    def hear(self) -> bytes:
        return self._exactly(int.from_bytes(self._exactly(2), "little"))

    def frame(self, messages: bytes) -> None:
        self.say(b"\x25" + number(self.frames) + messages)
        self.frames += 1

    def flood(self, make: Declaration, count: int) -> None:
        """Says all as fast as it can, until it is cut."""
        threading.Thread(target=self._drain, daemon=True).start()
        with contextlib.suppress(OSError):
            for first in range(0, count, 100):
                self.frame(b"".join(make(i) for i in range(first, first + 100)))

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            part = self.link.recv(size - len(data))
            if not part:
                raise ConnectionError("the relay closed the connection")
            data += part
        return data

    def _drain(self) -> None:
        with contextlib.suppress(OSError):
            while self.link.recv(65536):
                pass


def seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@pytest.fixture(scope="module")
def port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def relay(port: int) -> Iterator[psutil.Process]:
    words = [sys.executable, "-u", "-m", "shoal", "relay", "--listen", f"127.0.0.1:{port}", "--status-every", "3600"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline().startswith("relay on")
        yield psutil.Process(process.pid)
        process.kill()


class Honest:
    """Two nodes in one process, one of which listens to the other."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = psutil.Process(process.pid)
        self.last = -1
        self._lines = process.stdout
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._lines is not None
        for line in self._lines:
            self.last = int(line)


@pytest.fixture(scope="module")
def honest(relay: psutil.Process, port: int) -> Iterator[Honest]:
    words = [sys.executable, "-u", "-c", HONEST, f"127.0.0.1:{port}"]
    path = os.pathsep.join([str(TESTS), *sys.path])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as process:
        honest = Honest(process)
        until(lambda: honest.last >= 0)
        yield honest
        process.kill()


@pytest.fixture
def many_files() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 4096:
        resource.setrlimit(resource.RLIMIT_NOFILE, (4096, hard))


@pytest.mark.parametrize("silent", [True, False], ids=["silent", "complete"])
def test_one_address_cannot_hold_all_sessions(
    relay: psutil.Process, honest: Honest, port: int, silent: bool, many_files: None
) -> None:
    source = f"127.0.2.{2 + silent}"
    held: list[socket.socket] = []
    for _ in range(1500):
        with contextlib.suppress(OSError):
            if silent:
                held.append(socket.create_connection(("127.0.0.1", port), 10, (source, 0)))
            else:
                held.append(Session(port, source).link)
    start = time.monotonic()
    link = Link("late", connect=[f"127.0.0.1:{port}"])
    try:
        until(lambda: link.status()["links"], 5)
        print(f" [a node connects after {time.monotonic() - start:.1f} s", end="")
        until(lambda: link.rounds_of(Who("ada")), 60)
    finally:
        link.close()
    print(f" and shares after {time.monotonic() - start:.1f} s]", end="")
    assert sum(is_open(each) for each in held) <= 64
    for each in held:
        each.close()


@pytest.mark.parametrize("what", FLOODS)
def test_twenty_thousand_declarations_cost_a_relay_and_its_nodes_little(
    relay: psutil.Process, honest: Honest, port: int, what: str
) -> None:
    before, nodes, memory = seconds(relay), seconds(honest.process), relay.memory_info().rss
    heard = honest.last
    session = Session(port, f"127.0.1.{1 + list(FLOODS).index(what)}")
    attack = threading.Thread(target=session.flood, args=(FLOODS[what], NUMBER), daemon=True)
    attack.start()
    time.sleep(1.0)
    for _ in range(25):  # until the relay has done what it does about it
        last = seconds(relay)
        time.sleep(0.5)
        if seconds(relay) - last < 0.1:
            break
    cost, each = seconds(relay) - before, (seconds(honest.process) - nodes) / 2
    grown = (relay.memory_info().rss - memory) >> 20
    print(f" [{what}: relay {cost:.1f} s and {grown} MB, a node {each:.1f} s]", end="")
    session.link.close()
    assert cost < 5
    assert each < 3
    assert grown < 100
    until(lambda: honest.last > heard + 5, 10)


def is_open(link: socket.socket) -> bool:
    link.setblocking(False)
    try:
        while data := link.recv(65536):
            pass
        return bool(data)
    except BlockingIOError:
        return True
    except OSError:
        return False
