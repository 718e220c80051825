"""HTTP servers that strangers reach: bounded connections, headers and bodies; who may see a page."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("starlette")
pytest.importorskip("uvicorn")

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.testclient import TestClient

from shoal_web.serving.guard import Access, Guard
from shoal_web.serving.pages import STATIC, application, read_body
from shoal_web.serving.server import Server, listening, server_config


class Served:
    """A small application."""

    def __init__(self) -> None:
        self.bound = listening("127.0.0.1", 0)
        self.port = self.bound.getsockname()[1]
        app = Starlette(
            routes=[Route("/", self._hello, methods=["GET", "POST"])], exception_handlers={HTTPException: self._refused}
        )
        self.server = Server(server_config(app, 8, log_level="critical"))
        self._thread = threading.Thread(target=self.server.run, args=([self.bound],), daemon=True)
        self._thread.start()
        while not self.server.started:
            time.sleep(0.01)

    async def _hello(self, request: Request) -> Response:
        return PlainTextResponse(await read_body(request, 1000, 1.0), headers={"connection": "close"})

    async def _refused(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        return PlainTextResponse(str(error), error.status_code, {"connection": "close"})

    def connect(self, data: bytes = b"") -> socket.socket:
        link = socket.create_connection(("127.0.0.1", self.port), 20)
        link.sendall(data)
        return link

    def ask(self, data: bytes) -> bytes:
        with self.connect(data) as link:
            return all_of(link)

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
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


GET = b"GET / HTTP/1.1\r\nHost: x\r\n"
POST = b"POST / HTTP/1.1\r\nHost: x\r\n"


@pytest.mark.network
@pytest.mark.parametrize(
    ("data", "status"),
    [
        (POST + b"Content-Length: 4\r\n\r\nbody", b"200"),
        (POST + b"Content-Length: 9999\r\n\r\n" + b"x" * 2000, b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"400\r\n" + b"x" * 1024 + b"\r\n", b"413"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n", b"408"),
        (POST + b"Content-Length: 9\r\nExpect: 100-continue\r\n\r\n", b"100"),
        (GET + b"X: " + b"x" * 20_000, b"400"),
        (GET + b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n", b"200"),
        (b"GET / HTTP/1.0\r\n\r\n", b"200"),
        (b"nonsense\r\n\r\n", b"400"),
    ],
    ids=["a body", "too long", "chunks", "slow", "expect", "long headers", "websocket", "HTTP/1.0", "nonsense"],
)
def test_what_strangers_send_gets_one_answer_and_an_end(served: Served, data: bytes, status: bytes) -> None:
    said = served.ask(data)
    assert said.startswith(b"HTTP/1.1 " + status)


@pytest.mark.network
def test_connections_are_bounded(served: Served) -> None:
    with contextlib.ExitStack() as stack:
        for _ in range(8):
            stack.enter_context(served.connect())
        time.sleep(0.2)
        assert served.ask(GET + b"Connection: close\r\n\r\n").startswith(b"HTTP/1.1 503")
    time.sleep(0.2)
    assert served.ask(GET + b"\r\n").startswith(b"HTTP/1.1 200")


def client_of(token: str) -> TestClient:
    """Of a page that asks for `token`."""
    app = Guard(application(STATIC, []), Access(token=token))
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
