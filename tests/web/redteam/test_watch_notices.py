"""`shoal watch --swarm` while liars flood it with notices, as a process of its own behind a real relay."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psutil
import pytest
from strangers import SWARM, address, program, relay
from test_network import free_port, until

pytest.importorskip("starlette")

from shoal.identity.keys import Identity
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.session import TransportOptions, open_session
from shoal.wire.notices import MAX_BYTES, Lesson, Notice, seal_notice

WATCH = """
import sys
from shoal_web.watch import swarm
swarm.SPAN = 1.0  # seconds stand for longer, so that the test need not wait
from shoal.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
HEAR = """
import sys, psutil
from shoal.wire.notices import Lesson, Notice
from shoal_web.watch.swarm import Heard
def notice(at):
    lessons = tuple(Lesson(f"{at}-{slot}".ljust(130), at, slot, f"{at}-{slot}".ljust(100)) for slot in range(64))
    return Notice(1, "lagoon", (at % keys).to_bytes(32, "big"), float(at), at, f"{at}".ljust(256), 1.0, 1.0, lessons)
heard, process, keys = Heard(), psutil.Process(), int(sys.argv[2])
heard.add(notice(0), 0.0)
before = process.memory_info().rss
for at in range(1, int(sys.argv[1])):
    heard.add(notice(at), at / 100)
print((process.memory_info().rss - before) / 2**20)
"""
"""Prints by how many MB a process grows that hears so many notices of so many keys, a hundred a second."""
HONEST, GROWTH = 8, 60
"""Honest nodes, and MB by which a watcher may grow."""


def large(identity: Identity, round: int) -> bytes:
    """A notice of nearly the largest size that counts, in which every text is another one. It boasts."""
    mark = f"{identity.id[:16]}-{round}-"
    lessons = tuple(
        Lesson(f"{mark}{slot}".ljust(120, "m"), round, slot, f"{mark}{slot}".ljust(94, "t")) for slot in range(64)
    )
    said = Notice(1, SWARM, identity.public, time.time(), round, mark.ljust(256, "x"), 1.0, 1.0, lessons)
    data = seal_notice(said, identity)
    assert MAX_BYTES * 0.9 < len(data) <= MAX_BYTES
    return data


def plain(identity: Identity, maker: Identity, round: int) -> bytes:
    lessons = (Lesson(maker.name, round, 0, "gcd"),)
    return seal_notice(Notice(1, SWARM, identity.public, time.time(), round, "guppy", 0.25, 0.5, lessons), identity)


class Watch:
    """A running `shoal watch` and its API."""

    def __init__(self, port: int, process: psutil.Process) -> None:
        self._base, self.process = f"http://127.0.0.1:{port}/api/runs", process
        [run] = self._get("")["runs"]
        self._id = run["id"]

    def ask(self, what: str) -> Any:
        return self._get(f"/{self._id}/{what}")

    def megabytes(self) -> float:
        return self.process.memory_info().rss / 2**20

    def _get(self, path: str) -> Any:
        with urllib.request.urlopen(self._base + path, timeout=30) as answer:
            return json.load(answer)


@contextmanager
def watching(where: str) -> Iterator[Watch]:
    port = free_port()
    words = ("watch", "--serve", "--no-open", "--listen", f"127.0.0.1:{port}", "--swarm", SWARM, where)
    with program(*words, says="watching", command=(sys.executable, "-u", "-c", WATCH)) as running:
        watch = Watch(port, psutil.Process(running.process.pid))
        until(lambda: not watch.ask("summary")["trouble"])
        yield watch


@pytest.mark.network
def test_liars_neither_fill_memory_nor_hide_those_who_were_there_before() -> None:
    """5,000 liars' 17,000 notices of the largest size, each claiming a pass@1 of 1."""
    honest = [Identity.generate() for _ in range(HONEST)]
    liars = [Identity.generate() for _ in range(5000)]
    keys, round, where = Keys(SWARM), 0, address()
    with relay(where), watching(where) as watch, open_session(TransportOptions(connect=(where,))) as session:

        def speak() -> None:
            nonlocal round
            round += 1
            for at, one in enumerate(honest):
                session.put(keys.notices(one.id), plain(one, honest[at - 1], round))

        for _ in range(12):
            speak()
            time.sleep(0.5)
        names = {one.name for one in honest}
        until(lambda: {node["name"] for node in watch.ask("summary")["nodes"]} == names)
        before = watch.megabytes()
        for at in range(17_000):
            liar = liars[at % len(liars)]
            session.put(keys.notices(liar.id), large(liar, at))
            if at % 1000 == 0:
                speak()
        speak()
        time.sleep(2.0)
        summary = watch.ask("summary")
        grown = watch.megabytes() - before
        shown = [node["name"] for node in summary["nodes"]]
        print(f"{grown:.0f} MB more, {summary['notices']} heard; of the honest {len(names & set(shown))} are shown")
        assert grown <= GROWTH
        assert set(shown[:HONEST]) == names  # those heard for longest come first
        assert summary["more"] > 0  # and it says how many more spoke, of those that it had time to hear
        assert all(node["round"] >= 12 for node in summary["nodes"][:HONEST])
        assert names <= {edge["node"] for edge in watch.ask("graph")["edges"]}


@pytest.mark.parametrize(("notices", "keys"), [(100_000, 1_000), (100_000, 100_000)])
def test_memory_is_bounded_whatever_is_heard(notices: int, keys: int) -> None:
    command = [sys.executable, "-c", HEAR, str(notices), str(keys)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    print(f"{notices} notices of {keys} keys: {float(done.stdout):.0f} MB more")
    assert float(done.stdout) <= GROWTH
