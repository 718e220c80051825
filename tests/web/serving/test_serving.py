"""HTTP servers that strangers reach: which clients stay, and that slow ones are cut."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.testclient import TestClient

from shoal_web.serving import connections as limits
from shoal_web.serving.bodies import BodyError, read_body
from shoal_web.serving.connections import Connections, proven
from shoal_web.serving.guard import Access, Guard
from shoal_web.serving.pages import STATIC, page_routes
from shoal_web.serving.quota import LOOPBACK_SHARE, Quota
from shoal_web.serving.server import Server, listening


@dataclass(eq=False)
class Client:
    address: str
    busy: bool = False
    out: bool = field(default=False, init=False)

    def cut(self) -> None:
        self.out = True


def fill(quota: Quota[Client], address: str, count: int, proven: bool = False, busy: bool = False) -> list[Client]:
    clients = [Client(address, busy) for _ in range(count)]
    for client in clients:
        assert quota.enter(client)
        if proven:
            quota.prove(client)
    return clients


def out(clients: list[Client]) -> list[int]:
    return [number for number, client in enumerate(clients) if client.out]


def test_who_comes_in_numbers_displaces_himself() -> None:
    quota: Quota[Client] = Quota(10)
    few, many = fill(quota, "few", 2), fill(quota, "many", 100)
    assert out(few) == []
    assert out(many) == list(range(92))
    assert len(quota) == 10
    [newcomer] = fill(quota, "new", 1)
    fill(quota, "many", 100)
    assert not newcomer.out


def test_proven_clients_stay_and_make_room_while_they_are_idle() -> None:
    quota: Quota[Client] = Quota(4)
    kept = fill(quota, "person", 2)
    for client in kept:
        quota.prove(client)
    fill(quota, "many", 50)
    assert out(kept) == []
    busy = fill(quota, "person", 2, proven=True, busy=True)
    idle = kept[0]
    fill(quota, "many", 50)
    assert (idle.out, out(busy)) == (True, [])
    kept[1].busy = True
    quota.leave(busy[0])
    fill(quota, "person", 2, proven=True, busy=True)
    assert not quota.enter(Client("many"))  # all are busy
    assert len(quota) == 4


def test_one_address_has_so_many() -> None:
    quota: Quota[Client] = Quota(10, 3)
    mine = fill(quota, "a", 5)
    assert out(mine) == [0, 1]
    for client in mine[2:]:
        client.busy = True
        quota.prove(client)
    assert not quota.enter(Client("a"))
    assert quota.enter(Client("b"))
    assert len(quota) == 4


def test_this_machine_has_a_share() -> None:
    quota: Quota[Client] = Quota(100)
    own = fill(quota, "127.0.0.1", 60)
    fill(quota, "many", 1000)
    for number in range(1000):
        fill(quota, str(number), 1)
    assert out(own) == []
    fill(quota, "127.0.0.1", 30)
    fill(quota, "many", 1000)
    assert len([client for client in quota if client.address == "127.0.0.1"]) >= LOOPBACK_SHARE - 1


def test_counts_are_right_whatever_happens() -> None:
    random = Random(0)
    quota: Quota[Client] = Quota(8, 5)
    inside: list[Client] = []
    for _ in range(5000):
        what = random.random()
        if what < 0.6:
            client = Client(random.choice("abcdef"), random.random() < 0.5)
            if quota.enter(client):
                inside.append(client)
        elif inside and what < 0.8:
            quota.prove(random.choice(inside))
        elif inside:
            quota.leave(inside.pop(random.randrange(len(inside))))
        inside = [client for client in inside if not client.out]
        assert len(quota) == len(list(quota)) == len(inside) <= 8
        assert set(quota) == set(inside)


class Served:
    """A small application on `Connections`, with short limits."""

    def __init__(self, most: int = 8) -> None:
        self.offences: list[str] = []
        self.ended = 0
        self.connections = Connections(most, None, lambda address: True, self.offences.append)
        self.bound = listening("127.0.0.1", 0, other=False)
        self.port = self.bound.getsockname()[1]
        routes = [
            Route("/", self._hello, methods=["GET", "POST"]),
            Route("/large", self._large),
            Route("/stream", self._stream),
        ]
        app = Starlette(routes=routes, exception_handlers={BodyError: self._refused})
        config = self.connections.config(app, log_level="critical", h11_max_incomplete_event_size=4096)
        self.server = Server(config)
        self._thread = threading.Thread(target=self.server.run, args=([self.bound],), daemon=True)
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)

    async def _hello(self, request: Request) -> Response:
        if "known" in request.headers:
            proven(request.scope)
        return PlainTextResponse(await read_body(request, 1000, 1.0))

    async def _large(self, request: Request) -> Response:
        proven(request.scope)
        return PlainTextResponse(b"x" * 50_000_000)

    async def _stream(self, request: Request) -> Response:
        import asyncio

        proven(request.scope)

        async def endless() -> Any:
            try:
                while True:
                    yield b"x" * 100_000
                    await asyncio.sleep(0.01)
            finally:
                self.ended += 1

        return StreamingResponse(endless())

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, BodyError)
        return PlainTextResponse(str(error), error.status)

    def connect(self, data: bytes = b"") -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), 20)
        link.sendall(data)
        return link

    def ask(self, data: bytes) -> bytes:
        with self.connect(data) as link:
            return all_of(link)

    def until_there_are(self, count: int) -> None:
        end = time.monotonic() + 30
        while len(self.connections) != count:
            assert time.monotonic() < end, len(self.connections)
            time.sleep(0.02)

    def close(self) -> None:
        self.server.force_exit = self.server.should_exit = True
        self._thread.join(10)
        self.bound.close()


def all_of(link: socket.socket) -> bytes:
    """What comes until the other side ends it, however it does."""
    said = b""
    with contextlib.suppress(ConnectionError):
        while part := link.recv(65536):
            said += part
    return said


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> Iterator[Served]:
    monkeypatch.setattr(limits, "PATIENCE", 0.5)
    monkeypatch.setattr(limits, "STALL", 1.5)
    monkeypatch.setattr(limits, "EVERY", 0.1)
    made = Served()
    yield made
    made.close()


GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
KNOWN = GET + b"Known: 1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.network
@pytest.mark.parametrize(
    ("data", "offends"),
    [
        (b"", False),
        (GET, True),
        (b"\x16\x03\x01\x02\x00", True),
        (KNOWN + b"\r\nGET /", True),
    ],
    ids=["silence", "half of the headers", "TLS", "half of the next request"],
)
def test_a_client_that_sends_no_request_is_cut(served: Served, data: bytes, offends: bool) -> None:
    with served.connect(data) as link:
        all_of(link)
        served.until_there_are(0)
    assert bool(served.offences) == offends


@pytest.mark.network
@pytest.mark.parametrize("byte_by_byte", [GET, KNOWN + b"Content-Length: 99\r\n\r\n"], ids=["headers", "a body"])
def test_bytes_one_by_one_gain_no_time(served: Served, byte_by_byte: bytes) -> None:
    with served.connect(byte_by_byte) as link:
        with contextlib.suppress(OSError):
            for _ in range(300):
                link.sendall(b"x")
                time.sleep(0.1)
            raise AssertionError("it was not cut")
        served.until_there_are(0)


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.parametrize("path", ["large", "stream"])
@pytest.mark.parametrize("half", [False, True], ids=["open", "half closed"])
def test_a_client_that_does_not_read_is_cut(served: Served, path: str, half: bool) -> None:
    with served.connect(f"GET /{path} HTTP/1.1\r\nHost: x\r\n\r\n".encode()) as link:
        link.recv(100)
        if half:
            link.shutdown(socket.SHUT_WR)
        served.until_there_are(0)
    while path == "stream" and not served.ended:
        time.sleep(0.02)


@pytest.mark.network
def test_a_slow_reader_has_the_time_it_needs(served: Served) -> None:
    with served.connect(b"GET /large HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n") as link:
        said = 0
        while part := link.recv(1_000_000):
            said += len(part)
            time.sleep(0.05)  # longer than STALL in all
    assert said > 50_000_000


@pytest.mark.network
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (POST + b"Content-Length: 4\r\n\r\nbody", b"200"),
        (POST + b"Content-Length: 9999\r\n\r\n" + b"x" * 2000, b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n", b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n", b"408"),
        (POST + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", b"100"),
        (GET + b"X: " + b"x" * 10_000, b"400"),
        (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"200"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
    ids=["a body", "too long", "chunks", "slow", "expect", "long headers", "websocket", "HTTP/1.0", "nonsense"],
)
def test_what_strangers_send_gets_one_answer_and_an_end(served: Served, data: bytes, status: bytes) -> None:
    said = served.ask(data)
    assert said.startswith(b"HTTP/1.1 " + status)
    served.until_there_are(0)


@pytest.mark.network
def test_an_unproven_client_has_one_answer_a_proven_one_many(served: Served) -> None:
    assert served.ask((GET + b"\r\n") * 5).count(b"HTTP/1.1 200") == 1
    assert served.ask((KNOWN + b"\r\n") * 5).count(b"HTTP/1.1 200") == 5


@pytest.mark.network
def test_silent_connections_do_not_displace_a_proven_one(served: Served) -> None:
    with served.connect(KNOWN + b"\r\n") as person, contextlib.ExitStack() as stack:
        assert b"200" in person.recv(65536)
        for _ in range(50):
            stack.enter_context(served.connect())
        person.sendall(KNOWN + b"\r\n")
        assert b"200" in person.recv(65536)
        assert len(served.connections) <= 8
        assert served.ask(KNOWN + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 200")


def client_of(token: str) -> TestClient:
    """Of a page that asks for `token`."""
    app = Guard(Starlette(routes=page_routes(STATIC)), Access(token=token))
    return TestClient(app, "http://localhost", follow_redirects=False)


def test_a_wrong_token_is_told() -> None:
    client = client_of("a token that is long")
    sent = client.get("/?token=another").headers["location"]
    assert 'role="alert">' in client.get(sent).text
    assert 'role="alert" hidden>' in client.get("/enter").text


def test_a_link_in_another_sites_page_lets_in() -> None:
    """A browser sends no strict cookie after a redirect that another site started."""
    answer = client_of("a token that is long").get("/?token=a token that is long")
    assert (answer.status_code, answer.headers["location"]) == (303, "/")
    assert "samesite=lax" in answer.headers["set-cookie"].lower()
