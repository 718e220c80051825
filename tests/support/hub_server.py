"""A stand-in for the Hugging Face Hub, for its own client: data sets that take commits, within the documented limits.

It is no Hub: it knows the paths that `HfFileSystem` asks for, and answers as the Hub's documentation says. Limits that
are documented (2026): 128 commits of a repository in an hour, then 429; 10,000 files in a folder.

    with hub() as (url, commits): ...      # HF_ENDPOINT=url
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlparse

COMMITS, FOLDER = 128, 10_000


class Hub(ThreadingHTTPServer):
    daemon_threads = True
    files: dict[str, bytes]
    commits: list[list[str]]
    """The paths that each commit added or removed."""


class Handler(BaseHTTPRequestHandler):
    server: Hub
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None: ...

    def answer(self, code: int, body: object, **headers: str) -> None:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(code)
        for name, value in {"Content-Length": str(len(data)), **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def entries(self, folder: str) -> list[dict[str, object]]:
        found: dict[str, dict[str, object]] = {}
        for path, data in self.server.files.items():
            if path.startswith(folder):
                name, inner, _ = path[len(folder) :].partition("/")
                whole = {"type": "directory" if inner else "file", "path": folder + name, "oid": "0" * 40}
                found[name] = whole | ({} if inner else {"size": len(data)})
        return list(found.values())

    def do_GET(self) -> None:
        path = unquote(urlparse(self.path).path)
        if found := re.match(r"/(?:api/)?datasets/[^/]+/[^/]+/resolve/main/(.*)", path):
            data = self.server.files.get(found[1])
            if data is None:
                return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            first, last = 0, len(data) - 1
            if wanted := re.fullmatch(r"bytes=(\d+)-(\d*)", self.headers.get("Range", "")):
                first, last = int(wanted[1]), min(int(wanted[2] or last), last)
            part = data[first : last + 1]
            extra = {"ETag": '"0"', "X_Repo_Commit": "0" * 40, "Accept_Ranges": "bytes"}
            return self.answer(206 if wanted else 200, part, Content_Range=f"bytes {first}-{last}/{len(data)}", **extra)
        if found := re.match(r"/api/datasets/[^/]+/[^/]+/tree/main/?(.*)", path):
            folder = found[1].rstrip("/") + "/" if found[1] else ""
            entries = self.entries(folder)
            if not entries and folder:
                return self.answer(404, {"error": "Entry not found"}, X_Error_Code="EntryNotFound")
            return self.answer(200, entries)
        if re.fullmatch(r"/api/datasets/[^/]+/[^/]+(/revision/main)?", path):
            return self.answer(200, {"id": "ada/lagoon", "sha": "0" * 40, "private": False, "siblings": []})
        self.answer(404, {"error": f"not known here: GET {path}"})

    do_HEAD = do_GET

    def do_POST(self) -> None:
        path = unquote(urlparse(self.path).path)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if path.endswith("/paths-info/main"):
            asked = json.loads(body) if body.startswith(b"{") else {}
            names = asked.get("paths", []) or re.findall(r"paths=([^&]*)", unquote(body.decode()))
            found = [
                entry
                for name in ([names] if isinstance(names, str) else names)
                for entry in self.entries(name.rpartition("/")[0] + "/" if "/" in name else "")
                if entry["path"] == name
            ]
            return self.answer(200, found)
        if path.endswith("/preupload/main"):
            files = json.loads(body)["files"]
            modes = [{"path": file["path"], "uploadMode": "regular", "shouldIgnore": False} for file in files]
            return self.answer(200, {"files": modes})
        if path.endswith("/commit/main"):
            return self.commit([json.loads(line) for line in body.splitlines()])
        self.answer(404, {"error": f"not known here: POST {path}"})

    def commit(self, lines: list[dict[str, dict[str, str]]]) -> None:
        if len(self.server.commits) >= COMMITS:
            return self.answer(429, {"error": "You have exceeded the rate limit for repository commits (128 per hour)"})
        touched, files = [], dict(self.server.files)
        for line in lines[1:]:
            value = line["value"]
            touched.append(value["path"])
            if line["key"] == "file":  # type: ignore[comparison-overlap]
                files[value["path"]] = base64.b64decode(value["content"])
            else:
                files.pop(value["path"], None)
        folders = [path.rpartition("/")[0] for path in files]
        if any(folders.count(folder) > FOLDER for folder in {path.rpartition("/")[0] for path in touched}):
            return self.answer(400, {"error": "a folder may have 10,000 files"})
        self.server.files = files
        self.server.commits.append(touched)
        self.answer(
            200,
            {
                "commitOid": "0" * 40,
                "commitUrl": f"http://127.0.0.1:{self.server.server_port}/datasets/ada/lagoon/commit/0",
            },
        )


@contextmanager
def hub() -> Iterator[tuple[str, Hub]]:
    server = Hub(("127.0.0.1", 0), Handler)
    server.files, server.commits = {}, []
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}", server
    finally:
        server.shutdown()
