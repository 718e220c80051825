"""Entries of directories for tests, good and bad, and servers that serve directories badly."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import msgspec

from shoal.identity.keys import Identity
from shoal.invitations.entry import DAY, DOMAIN, Entry, EntryTasks, SignedEntry, sign_entry
from shoal_host.directory.listing import Listed, directory_of

NOW = 1_800_000_000
KEY = "ab" * 32


def entry(identity: Identity, **changes: Any) -> Entry:
    """An entry that everybody takes, with these changes."""
    whole: dict[str, Any] = {
        "name": "reef",
        "swarm": "reef",
        "about": "Easy arithmetic.",
        "relays": ("relay.example.org:7447",),
        "tasks": EntryTasks("reef"),
        "judges": (f"https://judge.example.org#{KEY}",),
        "rules": ("Be kind.",),
        "key": identity.id,
        "signed": NOW - DAY,
        "expires": NOW + DAY,
    }
    return Entry(**(whole | changes))


def signed(identity: Identity, **changes: Any) -> SignedEntry:
    """The same, signed."""
    return sign_entry(entry(identity, **changes), identity)


def signed_badly(identity: Identity, **changes: Any) -> bytes:
    """JSON of any entry with a right signature: what a host's own program can make."""
    made = entry(identity, **changes)
    return msgspec.json.encode(SignedEntry(made, _sign(identity, made)))


def listed(identity: Identity, source: str = "here.json", **changes: Any) -> Listed:
    """An entry of the directory `source`."""
    return Listed(signed(identity, **changes), source)


def directory(*entries: SignedEntry) -> bytes:
    """A directory with these entries."""
    return directory_of(entries)


@contextmanager
def serving(respond: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The URL of a directory at a server that answers every request by `respond`. What hangs there ends with the
    block: `handler.server.over` is set."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            with contextlib.suppress(OSError):  # the client has enough
                respond(self)

        def log_message(self, *_: object) -> None:
            """Says nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.over = threading.Event()  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}/swarms.json"
    finally:
        server.over.set()  # type: ignore[attr-defined]
        server.shutdown()
        thread.join()
        server.server_close()


def over(handler: BaseHTTPRequestHandler) -> threading.Event:
    """Set when the test is over."""
    event: threading.Event = handler.server.over  # type: ignore[attr-defined]
    return event


def send(handler: BaseHTTPRequestHandler, body: bytes, status: int = 200) -> None:
    """A plain reply."""
    handler.send_response(status)
    handler.send_header("Content-Length", str(len(body)))
    handler.end_headers()
    handler.wfile.write(body)


def _sign(identity: Identity, made: Entry) -> str:
    return identity.sign(DOMAIN + msgspec.json.encode(made, order="sorted")).hex()
