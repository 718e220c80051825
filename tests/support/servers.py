"""Small HTTP servers on loopback that speak as OpenAI's do, or badly."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Reply = tuple[int, Any]
"""Status, and what is sent: plain data as JSON, bytes as they are. What else there is to do, a handler does itself."""


def chat(*answers: str, finish: str | None = "stop") -> dict[str, Any]:
    """A reply with these answers."""
    return {"choices": [{"message": {"role": "assistant", "content": a}, "finish_reason": finish} for a in answers]}


@dataclass
class Server:
    """What a server was asked, and what it says: replace `answer` as you go."""

    answer: Callable[[Server, dict[str, Any]], Reply | None]
    models: Reply = (200, {"data": [{"id": "m"}]})
    url: str = ""
    asked: list[dict[str, Any]] = field(default_factory=list)
    keys: list[str | None] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)
    together: int = 0
    most_together: int = 0
    over: threading.Event = field(default_factory=threading.Event)
    """Set at the end, so that what hangs wakes up."""
    handler: Any = None

    @property
    def questions(self) -> list[dict[str, Any]]:
        """What it was asked, without the trial that a policy begins with."""
        return [body for body in self.asked if body["messages"][-1]["content"] != "Say yes."]


def good(server: Server, body: dict[str, Any]) -> Reply:
    """Answers each question with its text and seed, as often as it is asked to."""
    return 200, chat(*(f"{body['messages'][-1]['content']}|{body['seed']}|{number}" for number in range(body["n"])))


@contextmanager
def serving(answer: Callable[[Server, dict[str, Any]], Reply | None] = good, **options: Any) -> Iterator[Server]:
    """A server on a free port; an `answer` of None says that it has dropped the connection."""
    state = Server(answer, **options)
    lock = threading.Lock()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.say(*(state.models if self.path == "/v1/models" else (404, {})))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with lock:
                state.asked.append(body)
                state.keys.append(self.headers["Authorization"])
                state.together += 1
                state.most_together = max(state.most_together, state.together)
                state.handler = self
            reply = state.answer(state, body) if self.path == "/v1/chat/completions" else (404, {})
            with lock:
                state.together -= 1
            if reply:
                self.say(*reply)
            else:
                self.close_connection = True

        def say(self, status: int, data: Any) -> None:
            raw = data if isinstance(data, bytes) else json.dumps(data).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(raw)))
            for name, value in state.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: Any, client_address: Any) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as httpd:
        state.url = f"http://127.0.0.1:{httpd.server_address[1]}/v1"
        thread = threading.Thread(target=httpd.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.over.set()
            httpd.shutdown()
            thread.join()


def free_url() -> str:
    """An address at which nobody listens."""
    with serving() as server:
        return server.url
