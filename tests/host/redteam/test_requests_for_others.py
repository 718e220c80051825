"""What a stranger can make a node ask of machines that only the node reaches: next to nothing.

Judges, relays and invitations may name any address, also one in the node's own network."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from fakes import Parrot

from shoal.identity.keys import Identity
from shoal.transports.zenoh.session import WHY, limits_of
from shoal_host.judge.judges import Judges

pytestmark = pytest.mark.network
KEY = "ab" * 32


class Inside(ThreadingHTTPServer):
    """A server that strangers do not reach. It notes what it is asked."""

    daemon_threads = True

    def __init__(self, answer: tuple[int, dict[str, str], bytes] = (200, {}, b"secret")) -> None:
        super().__init__(("127.0.0.1", 0), Noting)
        self.answer = answer
        self.asked: list[tuple[str, str, bytes]] = []
        threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Noting(BaseHTTPRequestHandler):
    server: Inside

    def handle_one(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        self.server.asked.append((self.command, self.path, body))
        status, headers, data = self.server.answer
        self.send_response(status)
        for name, value in ({"content-length": str(len(data))} | headers).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = do_PUT = do_DELETE = handle_one

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def inside() -> Iterator[Inside]:
    server = Inside()
    yield server
    server.shutdown()
    server.server_close()


def asked_by(url: str) -> str:
    """What a node says of a judge at `url`."""
    judges = Judges([f"{url}#{KEY}"], Identity.generate(), patience=5.0)
    assert judges.ask(Parrot("2"), 1, 0) == {"judge/pass@1": None, "judge/questions": 0}
    return judges.trouble


def test_a_judge_s_address_inside_gets_one_signed_message_and_is_not_shown(inside: Inside) -> None:
    said = asked_by(inside.url)
    assert {(method, path) for method, path, _ in inside.asked} == {("POST", "/ask")}
    assert all(not body.startswith((b"{", b"<", b"GET", b"POST")) for *_, body in inside.asked)
    assert "secret" not in said


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_no_redirect_leads_inside(inside: Inside, status: int) -> None:
    outside = Inside((status, {"location": f"{inside.url}/admin?reboot"}, b""))
    try:
        assert f"HTTP {status}" in asked_by(outside.url)
        assert inside.asked == []
        assert len(outside.asked) == 1
    finally:
        outside.shutdown()
        outside.server_close()


def test_what_a_refusal_says_of_the_inside_is_short_and_plain(inside: Inside) -> None:
    inside.answer = (500, {"x": "y"}, b"Traceback: password=hunter2 " * 1000)
    assert "hunter2" not in asked_by(inside.url)


def test_a_relay_s_address_gets_the_same_few_bytes() -> None:
    """Who cannot connect asks why, whatever it is that listens there."""
    got: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def hear() -> None:
            link, _ = server.accept()
            with link:
                link.settimeout(5)
                got.append(link.recv(100))
                link.sendall(b"220 mail.example ESMTP\r\n" * 100)

        listening = threading.Thread(target=hear, daemon=True)
        listening.start()
        assert limits_of([f"tcp/127.0.0.1:{server.getsockname()[1]}"]) == ""
        listening.join(10)
    assert got == [WHY]
