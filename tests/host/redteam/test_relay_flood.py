"""One address against a relay: 20,000 declarations at once, and all of its connections. Real bytes, a real relay.

Also single messages that end a process, parts of messages that nobody ends, and sessions that read nothing."""

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
    ada.sends(round)
    print(max(bob.rounds_of(ada), default=-1), flush=True)
    time.sleep(0.1)
"""
HUB = """
import sys, time
from test_network import Link
hub = Link("hub", listen=[sys.argv[1]])
hub.sends(1)
print("listening", flush=True)
time.sleep(600)
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


def network_state(psid: int) -> bytes:
    """What a relay tells others of the network: that the relay with the number `psid` is in it. The number is made
    up, and Zenoh makes a table with as many rows."""
    states = (0, [psid]), (psid, [0])
    body = number(len(states))
    for at, links in states:
        body += number(3) + number(at) + b"\x01\x10" + os.urandom(16) + b"\x01" + number(len(links))
        body += b"".join(map(number, links))
    return b"\x5f\x01" + number(len(body)) + body


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

    def __init__(self, port: int, source: str, whatami: int = 2, buffer: int = 0) -> None:
        """`whatami`: 0 is a relay, 1 a node that listens, 2 a client. `buffer`: bytes that wait to be read."""
        self.link = socket.socket()
        if buffer:
            self.link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
        self.link.settimeout(10)
        self.link.bind((source, 0))
        self.link.connect(("127.0.0.1", port))
        self.say(bytes([1, 9, 0xF0 | whatami]) + os.urandom(16))
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


@pytest.mark.parametrize("psid", [2**32, 2**60])
@pytest.mark.parametrize("whatami", [0, 1, 2])
def test_one_message_about_the_network_ends_no_relay(
    relay: psutil.Process, honest: Honest, port: int, whatami: int, psid: int
) -> None:
    with contextlib.suppress(OSError):  # it is cut, or was not let in
        Session(port, "127.0.3.1", whatami).frame(network_state(psid))
    heard = honest.last
    until(lambda: honest.last > heard + 5)
    assert relay.is_running()


@pytest.mark.parametrize("psid", [2**32, 2**60])
@pytest.mark.parametrize("whatami", [0, 1, 2])
def test_one_message_about_the_network_ends_no_node_that_listens(whatami: int, psid: int) -> None:
    port = free_port()
    words = [sys.executable, "-u", "-c", HUB, f"127.0.0.1:{port}"]
    path = os.pathsep.join([str(TESTS), *sys.path])
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "listening\n"
            session = Session(port, "127.0.3.1", whatami)
            session.frame(network_state(psid))
            guest = Link("guest", connect=[f"127.0.0.1:{port}"])
            try:
                until(lambda: guest.rounds_of(Who("hub")) == [1])
            finally:
                guest.close()
            assert process.poll() is None
        finally:
            process.kill()


def test_messages_that_nobody_ends_cost_a_relay_little(relay: psutil.Process, port: int) -> None:
    """A relay keeps the parts until the last one comes, and each part as if it were as large as it may be."""
    memory = relay.memory_info().rss
    for priority in range(8):
        for kind in (b"\xe6", b"\xc6"):
            large, small = Session(port, "127.0.3.2"), Session(port, "127.0.3.2")
            with contextlib.suppress(OSError):
                for at in range(16):
                    part = b"\x3d" + own(0) if not at else b""
                    large.say(kind + number(at) + b"\x31" + number(priority) + part + bytes(60_000))
            with contextlib.suppress(OSError):
                for at in range(500):
                    small.say(b"\x66" + number(at) + (b"\x3d" + own(0) if not at else b"x"))
    grown = (relay.memory_info().rss - memory) >> 20
    print(f" [{grown} MB]", end="")
    assert grown < 30


def test_sessions_that_read_nothing_stop_nobody(relay: psutil.Process, honest: Honest, port: int) -> None:
    """Zenoh waits for a session that has no room for a declaration, and everybody with it, until it ends the
    session: by default for five seconds each."""
    silent = [Session(port, "127.0.4.1", buffer=4096) for _ in range(40)]
    for each in silent:
        each.frame(b"\x79\x01\x07")  # interested in all that anybody declares
    floods = [Session(port, f"127.0.4.{number}") for number in range(2, 7)]
    for each in floods:
        where = each.link.getsockname()[0]
        each.flood(lambda i, where=where: declared(2, i, key(f"shoal/{where}/{i}/{'q' * 450}")), 2000)

    def is_over(session: Session) -> bool:
        try:
            session.say(b"\x04")
        except OSError:
            return True
        return False

    until(lambda: all(is_over(each) for each in silent))
    heard = honest.last
    until(lambda: honest.last > heard + 5)


CONTINUED = {
    "a subscriber": bytes([0x1E, 0x22]) + number(5) + number(1) + number(4) + b"/**q",
    "a queryable": bytes([0x1E, 0x24]) + number(5) + number(1) + number(2) + b"/*",
    "an interest": b"\x79" + number(5) + b"\x33" + number(1) + number(3) + b"/**",
    "a query": b"\x3c" + number(5) + number(1) + number(3) + b"/**" + b"\x03",
    "data": b"\x3d" + number(1) + number(2) + b"/x" + b"\x01\x01x",
}


@pytest.mark.parametrize("what", CONTINUED)
def test_who_continues_a_key_expression_of_the_relay_is_cut(
    relay: psutil.Process, honest: Honest, port: int, what: str
) -> None:
    """Zenoh 1.10.2 declares none to a client, but tells everything in full. One that did would let it be continued,
    and the forwarder, which does not read what the relay says, would know only the rest."""
    session = Session(port, f"127.0.5.{1 + list(CONTINUED).index(what)}")
    session.frame(b"\x79\x01\x33" + key("shoal/**"))  # so the relay says what it knows
    session.frame(CONTINUED[what])
    until(lambda: not is_open(session.link), 10)
    heard = honest.last
    until(lambda: honest.last > heard + 2)


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
