"""A small hub over HTTP: who one is, making a repository, and a commit of ordinary and of large (LFS) files.

with FakeHub() as hub:
    HfApi(endpoint=hub.address, token="hf_good").create_repo("me/model")
"""

from __future__ import annotations

import base64
import hashlib
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self
from urllib.parse import urlparse


class FakeHub:
    """`hf_good` is the token of `me`, who may write below `me/`. Files that end in .safetensors are large."""

    def __init__(self) -> None:
        self.repos: dict[str, dict[str, bytes]] = {}
        self.private: dict[str, bool] = {}
        self.large: dict[str, bytes] = {}
        """By SHA-256."""
        self.fails = False
        """Whether each commit does."""
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Handler", (_Handler,), {"hub": self}))
        self.address = f"http://127.0.0.1:{self._server.server_port}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub

    def do_GET(self) -> None:
        path = urlparse(self.path).path
        if not self._known():
            return
        if path == "/api/whoami-v2":
            self._reply(200, {"type": "user", "name": "me", "orgs": []})
        elif path.startswith("/api/models/"):
            repo = "/".join(path.split("/")[3:5])
            if repo not in self.hub.repos:
                self._reply(404, {"error": "Repository not found"}, {"X-Error-Code": "RepoNotFound"})
                return
            files = [
                {"type": "file", "path": name, "oid": "0" * 40, "size": len(data)}
                for name, data in self.hub.repos[repo].items()
            ]
            whole = {"id": repo, "siblings": [{"rfilename": file["path"]} for file in files], "sha": "0" * 40}
            whole["private"] = self.hub.private.get(repo, True)
            self._reply(200, files if "/tree/" in path else whole)
        else:
            self._reply(404, {"error": path})

    def do_PUT(self) -> None:
        data = self._body()
        self.hub.large[hashlib.sha256(data).hexdigest()] = data
        self._reply(200, {})

    def do_POST(self) -> None:
        path = urlparse(self.path).path
        body = self._body()
        if not self._known():
            return
        if path == "/api/repos/create":
            told = json.loads(body)
            repo = f"{told.get('organization') or 'me'}/{told['name']}"
            if not repo.startswith("me/"):
                self._reply(403, {"error": "You don't have the rights to create a model under this namespace"})
                return
            status = 409 if repo in self.hub.repos else 200
            self.hub.repos.setdefault(repo, {})
            self.hub.private.setdefault(repo, told.get("visibility") == "private" or bool(told.get("private")))
            self._reply(status, {"url": f"{self.hub.address}/{repo}"})
        elif path == "/api/validate-yaml":
            self._reply(200, {"errors": [], "warnings": []})
        elif "/preupload/" in path:
            files = json.loads(body)["files"]
            modes = ["lfs" if file["path"].endswith(".safetensors") else "regular" for file in files]
            self._reply(
                200,
                {
                    "files": [
                        {"path": f["path"], "uploadMode": m, "shouldIgnore": False}
                        for f, m in zip(files, modes, strict=True)
                    ]
                },
            )
        elif path.endswith("/info/lfs/objects/batch"):
            objects = [
                {
                    "oid": o["oid"],
                    "size": o["size"],
                    "actions": {"upload": {"href": f"{self.hub.address}/put/{o['oid']}"}},
                }
                for o in json.loads(body)["objects"]
            ]
            self._reply(200, {"transfer": "basic", "objects": objects}, kind="application/vnd.git-lfs+json")
        elif "/commit/" in path:
            self._commit("/".join(path.split("/")[3:5]), body)
        else:
            self._reply(404, {"error": path})

    def _commit(self, repo: str, body: bytes) -> None:
        if self.hub.fails:
            self._reply(400, {"error": "no commits today"})
            return
        for line in body.splitlines():
            told = json.loads(line)
            if told["key"] == "file":
                self.hub.repos[repo][told["value"]["path"]] = base64.b64decode(told["value"]["content"])
            elif told["key"] == "lfsFile":
                self.hub.repos[repo][told["value"]["path"]] = self.hub.large[told["value"]["oid"]]
        address = f"{self.hub.address}/{repo}/commit/{'1' * 40}"
        self._reply(200, {"success": True, "commitOid": "1" * 40, "commitUrl": address, "hookOutput": ""})

    def _known(self) -> bool:
        if self.headers.get("Authorization") == "Bearer hf_good":
            return True
        self._reply(401, {"error": "Invalid username or password."})
        return False

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            parts = []
            while size := int(self.rfile.readline(), 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reply(
        self, status: int, told: Any, headers: dict[str, str] | None = None, kind: str = "application/json"
    ) -> None:
        data = json.dumps(told).encode()
        self.send_response(status)
        for name, value in {"Content-Type": kind, "Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        """Says nothing."""
