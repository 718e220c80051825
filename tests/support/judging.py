"""A judge in a process of its own, and nodes that speak to it byte by byte."""

from __future__ import annotations

import contextlib
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import msgspec

import shoal
from shoal.identity.keys import Identity
from shoal_host.judge import reports
from shoal_host.judge.messages import (
    Answer,
    Ask,
    Envelope,
    Posed,
    Receipt,
    Refusal,
    Verdict,
    encode,
    open_envelope,
    seal,
)

ROWS = """
SELECT lower(hex(n.key)) AS key, a.model, a.in_swarm, a.round, a.number, a.label AS task, o.score, o.outcome
FROM asks a JOIN nodes n ON n.id = a.node JOIN outcomes o ON o.ask = a.id ORDER BY a.id
"""
FAST = ("--work", "0", "--interval", "0.001", "--task", "chain_sum", "--task", "spell_backward")


def rows(path: Path) -> Iterator[dict[str, Any]]:
    """The settled questions in a judge's records, in order."""
    return reports.read(path, ROWS)


class Served:
    """A judge's process on a free port. `stop` or `kill` ends it; `start` starts it again on the same records."""

    def __init__(self, folder: Path, *flags: str) -> None:
        self.folder, self.flags = folder, flags
        self.port, self.key = 0, b""
        self.start()

    def start(self) -> None:
        path = os.pathsep.join([str(Path(shoal.__file__).parent.parent), os.environ.get("PYTHONPATH", "")])
        where = ["--listen", f"127.0.0.1:{self.port}", "--data", str(self.folder)]
        self.process = subprocess.Popen(
            [sys.executable, "-m", "shoal", "judge", *where, *FAST, *self.flags],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": path, "COLUMNS": "200"},
        )
        assert self.process.stdout is not None
        assert self.process.stdout.readline().startswith("judge ")
        port, _, key = self.process.stdout.readline().strip().rpartition("HOST:")[2].partition("#")
        self.port, self.key = int(port), bytes.fromhex(key)
        end = time.monotonic() + 60
        while True:
            with contextlib.suppress(httpx2.TransportError):
                if self.get("/health").status_code == 200:
                    return
            assert time.monotonic() < end, "the judge did not come up"
            time.sleep(0.05)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def get(self, path: str) -> httpx2.Response:
        return httpx2.get(self.url + path, timeout=30, trust_env=False)

    def post(self, path: str, body: bytes, **options: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, content=body, timeout=30, trust_env=False, **options)

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self._wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self._wait()

    def _wait(self) -> int:
        code = self.process.wait(60)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code


@contextlib.contextmanager
def served(folder: Path, *flags: str) -> Iterator[Served]:
    judge = Served(folder, *flags)
    try:
        yield judge
    finally:
        if judge.process.poll() is None:
            judge.kill()


class Node:
    """A node that says what it is told to say."""

    def __init__(self, judge: Served) -> None:
        self.judge, self.identity = judge, Identity.generate()

    def ask(self, round: int, signer: Identity | None = None, **values: Any) -> Envelope:
        given: dict[str, Any] = {"judge": self.judge.key, "key": self.identity.public, "time": time.time()}
        given |= {"nonce": secrets.token_bytes(16), "model": "m", "in_swarm": True, **values}
        return seal(Ask(round=round, **given), signer or self.identity)

    def answer(self, posed: bytes, text: str = "1", signer: Identity | None = None, **values: Any) -> Envelope:
        given = {"judge": self.judge.key, "key": self.identity.public, **values}
        return seal(Answer(posed=posed, text=text, **given), signer or self.identity)

    def posed(self, round: int, **values: Any) -> tuple[Posed, bytes]:
        response = self.judge.post("/ask", encode(self.ask(round, **values)))
        assert response.status_code == 200, reason(response)
        posed, envelope = open_envelope(response.content, Posed)
        return posed, envelope.hash

    def verdict(self, answer: Envelope) -> Verdict:
        """Asks until it is there."""
        for _ in range(60):
            response = self.judge.post("/answer", encode(answer))
            assert response.status_code == 200, reason(response)
            reply, _ = open_envelope(response.content, Verdict, Receipt)
            if isinstance(reply, Verdict):
                return reply
        raise AssertionError("no verdict")


def reason(response: httpx2.Response) -> str:
    return msgspec.msgpack.decode(response.content, type=Refusal).reason
