"""How a judge bears 10,000 nodes that ask once a minute, and 200 hostile clients beside honest ones. On loopback.

    python benchmarks/judge.py load [--nodes 10000] [--seconds 60] [--json]
    python benchmarks/judge.py siege [--hostile 200] [--honest 20] [--seconds 30] [--json]

`load`: nodes begin at even distances, each opens a connection, asks, answers a second later and goes. `siege`: hostile
clients, each with an address of its own in 127.1.0.0/16 (Linux), flood, send rubbish, damage and replay messages, open
connections and send a byte a second, upload without end, and never read; honest nodes ask meanwhile, and all that the
judge acknowledged to them must be in its records afterwards.

A latency is that of one request, connecting included, by the client's clock. The clients share the machine's cores with
the judge: `load average` says how busy it was, `lag` how late the clients' own loop was.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import random
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil

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
from shoal_host.judge.records import FILE

SCORES = "SELECT lower(hex(n.key)) AS key, a.round, o.score"
Latencies = dict[str, list[float]]
LIMIT = 10.0
"""Seconds after which an honest client gives a request up: it was not served."""
THINKING = 1.0


@contextlib.contextmanager
def judge(folder: Path, *flags: str) -> Iterator[tuple[int, bytes, psutil.Process]]:
    """A judge in a process of its own: its port, its key, and the process."""
    command = [sys.executable, "-m", "shoal", "judge", "--listen", "127.0.0.1:0", "--data", str(folder), *flags]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        _, _, rest = process.stdout.readline().rpartition("HOST:")
        port, _, key = rest.strip().partition("#")
        time.sleep(6)  # its workers start
        yield int(port), bytes.fromhex(key), psutil.Process(process.pid)
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(60)


class Connection:
    """One connection of one client, as plain as can be."""

    def __init__(self, port: int, source: str = "127.0.0.1") -> None:
        self.port, self.source = port, source
        self.reader: asyncio.StreamReader
        self.writer: asyncio.StreamWriter | None = None

    async def post(self, path: str, body: bytes) -> tuple[int, bytes]:
        if self.writer is None:
            opened = asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.source, 0))
            self.reader, self.writer = await opened
        self.writer.write(b"POST /%s HTTP/1.1\r\nhost: j\r\ncontent-length: %d\r\n\r\n" % (path.encode(), len(body)))
        self.writer.write(body)
        head = await self.reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        return int(head[9:12]), await self.reader.readexactly(length)

    def close(self) -> None:
        if self.writer is not None:
            self.writer.close()
            self.writer = None


class Honest:
    """A node, and what it was told."""

    def __init__(self, port: int, judge: bytes, source: str = "127.0.0.1") -> None:
        self.identity = Identity.generate()
        self.port, self.judge, self.source = port, judge, source
        self.round = 0
        self.verdicts: dict[int, float] = {}

    async def exchange(self, latencies: Latencies, failures: Counter[str]) -> None:
        """One question and its answer, with the time that each request took."""
        connection = Connection(self.port, self.source)
        self.round += 1
        try:
            key = self.identity.public
            nonce = secrets.token_bytes(16)
            ask = Ask(
                judge=self.judge, key=key, nonce=nonce, time=time.time(), round=self.round, model="m", in_swarm=True
            )
            posed, envelope = await self._say(connection, "ask", seal(ask, self.identity), Posed, latencies)
            await asyncio.sleep(THINKING)
            answer = Answer(judge=self.judge, key=key, posed=envelope.hash, text=str(posed.round % 10))
            sent = seal(answer, self.identity)
            verdict, _ = await self._say(connection, "answer", sent, Verdict, latencies)
            while not isinstance(verdict, Verdict):  # a receipt
                failures.update(receipts=1)
                await asyncio.sleep(0.5)
                verdict, _ = await self._say(connection, "answer", sent, Verdict, latencies)
            self.verdicts[verdict.round] = verdict.score
        except Exception as error:  # whatever it is, this one was not served
            failures[f"{type(error).__name__}: {error}"[:80]] += 1
        finally:
            connection.close()

    async def _say(
        self, connection: Connection, path: str, message: Envelope, kind: Any, latencies: Latencies
    ) -> tuple[Any, Envelope]:
        started = time.perf_counter()
        try:
            status, data = await asyncio.wait_for(connection.post(path, encode(message)), LIMIT)
        except (OSError, asyncio.IncompleteReadError):  # it was idle for too long: the same bytes again, as nodes do
            connection.close()
            status, data = await asyncio.wait_for(connection.post(path, encode(message)), LIMIT)
        latencies[path].append(time.perf_counter() - started)
        if status != 200:
            raise ValueError(f"{status} {msgspec.msgpack.decode(data, type=Refusal).reason}")
        return open_envelope(data, kind, Receipt)


async def load(port: int, key: bytes, nodes: int, seconds: float, interval: float) -> dict[str, Any]:
    """`nodes` nodes, each once in `interval` seconds, for `seconds`."""
    latencies: Latencies = {"ask": [], "answer": []}
    lags: list[float] = []
    failures: Counter[str] = Counter()
    honest = [Honest(port, key) for _ in range(nodes)]
    loop = asyncio.get_running_loop()
    tasks = set()
    count = round(nodes * seconds / interval)
    started = loop.time()
    for number in range(count):
        due = started + number * interval / nodes
        await asyncio.sleep(max(0.0, due - loop.time()))
        lags.append(loop.time() - due)
        task = loop.create_task(honest[number % nodes].exchange(latencies, failures))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    if tasks:
        await asyncio.wait(tasks, timeout=3 * LIMIT)
    return figures(latencies) | {"exchanges": count, "failures": dict(failures), "lag_p99_ms": rank(lags, 0.99)}


async def siege(
    port: int, key: bytes, hostile: int, honest: int, seconds: float
) -> tuple[dict[str, Any], list[Honest]]:
    latencies: Latencies = {"ask": [], "answer": []}
    failures: Counter[str] = Counter()
    nodes = [Honest(port, key, f"127.2.0.{1 + number}") for number in range(honest)]
    end = time.monotonic() + seconds
    deeds: list[Callable[[Attacker], Coroutine[Any, Any, None]]] = [
        Attacker.rubbish,
        Attacker.flood,
        Attacker.damage,
        Attacker.replay,
        Attacker.drip,
        Attacker.upload,
        Attacker.hoard,
        Attacker.many_keys,
        Attacker.shop,
        Attacker.deaf,
    ]
    attackers = [
        Attacker(port, key, f"127.1.{number // 200}.{1 + number % 200}", number, end) for number in range(hostile)
    ]
    war = [asyncio.ensure_future(a.go(deeds[number % len(deeds)])) for number, a in enumerate(attackers)]

    async def live(node: Honest, delay: float) -> None:
        await asyncio.sleep(delay)
        while time.monotonic() < end:
            await node.exchange(latencies, failures)
            await asyncio.sleep(2.0)

    await asyncio.gather(*(live(node, 3 * number / honest) for number, node in enumerate(nodes)))
    for each in war:
        each.cancel()
    await asyncio.gather(*war, return_exceptions=True)
    deeds_done = sum((attacker.done for attacker in attackers), Counter[str]())
    found = figures(latencies) | {"failures": dict(failures), "hostile": dict(deeds_done)}
    return found, nodes


class Attacker:
    """One hostile client. Each deed goes on until the end, whatever comes back."""

    def __init__(self, port: int, judge: bytes, source: str, seed: int, end: float) -> None:
        self.port, self.judge, self.source, self.end = port, judge, source, end
        self.random = random.Random(seed)
        self.node = Honest(port, judge, source)
        self.done: Counter[str] = Counter()

    async def go(self, deed: Callable[[Attacker], Coroutine[Any, Any, None]]) -> None:
        while time.monotonic() < self.end:
            try:
                await asyncio.wait_for(deed(self), 15)
            except (TimeoutError, OSError, asyncio.IncompleteReadError, ValueError, asyncio.LimitOverrunError):
                await asyncio.sleep(0.05)
            self.done[deed.__name__] += 1

    async def _raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(self.source, 0))
        writer.write(data)
        return reader, writer

    async def _post(self, path: str, body: bytes) -> None:
        connection = Connection(self.port, self.source)
        try:
            await connection.post(path, body)
        finally:
            connection.close()

    def _ask(self, identity: Identity | None = None) -> Envelope:
        node = identity or self.node.identity
        self.node.round += 1
        nonce = self.random.randbytes(16)
        values = {"nonce": nonce, "time": time.time(), "round": self.node.round, "model": "x", "in_swarm": False}
        return seal(Ask(judge=self.judge, key=node.public, **values), node)

    async def rubbish(self) -> None:
        reader, writer = await self._raw(self.random.randbytes(self.random.randrange(4000)) + b"\r\n\r\n")
        await reader.read(100)
        writer.close()

    async def flood(self) -> None:
        await self._post("ask", b"x")

    async def damage(self) -> None:
        data = bytearray(encode(self._ask()))
        data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
        await self._post("ask", bytes(data))

    async def replay(self) -> None:
        data = encode(self._ask())
        for _ in range(20):
            await self._post("ask", data)

    async def drip(self) -> None:
        _, writer = await self._raw(b"POST /ask HTTP/1.1\r\n")
        for _ in range(60):
            writer.write(b"x")
            await writer.drain()
            await asyncio.sleep(1)

    async def upload(self) -> None:
        _, writer = await self._raw(b"POST /ask HTTP/1.1\r\nhost: j\r\ntransfer-encoding: chunked\r\n\r\n")
        for _ in range(10_000):
            writer.write(b"400\r\n" + bytes(1024) + b"\r\n")
            await writer.drain()
            await asyncio.sleep(0.01)

    async def hoard(self) -> None:
        pairs = await asyncio.gather(*(self._raw(b"") for _ in range(100)), return_exceptions=True)
        await asyncio.sleep(12)
        for pair in pairs:
            if not isinstance(pair, BaseException):
                pair[1].close()

    async def many_keys(self) -> None:
        await self._post("ask", encode(self._ask(Identity.generate())))

    async def shop(self) -> None:
        """Asks again and again without an answer, with ever new pretexts."""
        await self._post("ask", encode(self._ask()))

    async def deaf(self) -> None:
        """Sends requests on one connection and reads nothing."""
        _, writer = await self._raw(b"")
        for _ in range(10_000):
            writer.write(b"GET /leaderboard HTTP/1.1\r\nhost: j\r\n\r\n")
            await writer.drain()


def figures(latencies: Latencies) -> dict[str, Any]:
    names = {"p50_ms": 0.5, "p90_ms": 0.9, "p99_ms": 0.99, "max_ms": 1.0}
    every = {"": [value for values in latencies.values() for value in values], **latencies}
    found: dict[str, Any] = {"requests": len(every[""])}
    for path, values in every.items():
        found |= {f"{path}_{name}".strip("_"): rank(values, share) for name, share in names.items()}
    return found


def rank(values: list[float], share: float) -> float:
    """A quantile in milliseconds."""
    ordered = sorted(values)
    return round(1000 * ordered[min(len(ordered) - 1, int(share * len(ordered)))], 1) if ordered else float("nan")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("load", "siege"))
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--interval", type=float, default=60.0, help="seconds between a node's questions")
    parser.add_argument("--hostile", type=int, default=200)
    parser.add_argument("--honest", type=int, default=20)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "judge"
        flags = ["--interval", "1", "--work", "0"]
        if args.what == "load":
            flags += ["--address-newcomers", "1000000", "--newcomers", "1000000"]
        with judge(folder, *flags) as (port, key, process):
            cpu, started = sum(process.cpu_times()[:2]), time.monotonic()
            honest: list[Honest] = []
            if args.what == "load":
                result = asyncio.run(load(port, key, args.nodes, args.seconds, args.interval))
            else:
                result, honest = asyncio.run(siege(port, key, args.hostile, args.honest, args.seconds))
            spent = sum(process.cpu_times()[:2]) - cpu
            result["judge_cpu_share"] = round(spent / (time.monotonic() - started), 2)
            result["judge_cpu_ms_per_request"] = round(1000 * spent / max(1, result["requests"]), 2)
            result["judge_mib"] = round(process.memory_info().rss / 2**20, 1)
            result["load_average"] = round(os.getloadavg()[0], 1)
        kept = {
            (row["key"], row["round"]): row["score"] for row in reports.read(folder / FILE, f"{SCORES} {reports.FROM}")
        }
        told = {(node.identity.id, round): score for node in honest for round, score in node.verdicts.items()}
        if honest:
            result["acknowledged"] = len(told)
            result["lost"] = sum(kept.get(where) != score for where, score in told.items())
        result["records"] = len(kept)
        result["bytes_per_record"] = round((folder / FILE).stat().st_size / max(1, len(kept)))
    result["receipts"] = result["failures"].pop("receipts", 0)
    print(json.dumps(result) if args.json else "\n".join(f"{name:<18} {value}" for name, value in result.items()))
    bad = result["failures"] or result.get("lost") or (args.what == "load" and not result["p99_ms"] < 100)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
