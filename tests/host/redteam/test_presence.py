"""Made-up nodes by the thousand, through a real relay: who delivers keeps its listeners, and who is new finds it.

Each attack is a process of its own with a session like any other. The honest ones are real links on real sockets.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from test_network import Link, free_port, until

NUMBER = 4_000
"""Declarations. `benchmarks/presence.py` makes 65,000: Zenoh's time for them grows with the square of their number."""
QUERYABLES = 1_000
"""Queryables, which are slower still."""

FLOOD = """
import hashlib, os, sys, time
sys.path.insert(0, sys.argv[4])
from shoal.transports.zenoh.session import TransportOptions, open_session

what, where, number = sys.argv[1], sys.argv[2], int(sys.argv[3])
base = "shoal/lagoon/open"
session = open_session(TransportOptions(connect=(where,)))
keep = []

def made_up(number):
    id = hashlib.sha256(b"%d" % number).hexdigest()
    return hashlib.blake2b(id.encode(), digest_size=8).hexdigest()[:3] + "/" + id

if what == "tokens":
    for n in range(number):
        keep.append(session.liveliness().declare_token(f"{base}/peers/{made_up(n)}"))
elif what == "offer tokens":
    for n in range(number):
        keep.append(session.liveliness().declare_token(f"{base}/offers/{made_up(n)}"))
elif what == "publishers":
    for n in range(number):
        keep.append(session.liveliness().declare_token(f"{base}/rollouts/{made_up(n)}/@adv/pub/{n + 1:x}/1/_"))
elif what == "silent queryables":  # they hold every question open
    asked = []
    for n in range(number):
        keep.append(session.declare_queryable(f"{base}/offers/{made_up(n)}", asked.append))
elif what == "garbage answers":  # to every question, as many as there may be
    def answer(query):
        key = str(query.key_expr).replace("$*", "00")[:-1] + "0" * 64 if "*" in str(query.key_expr) else query.key_expr
        for n in range(number):
            query.reply(key, os.urandom(300))
        query.drop()
    keep.append(session.declare_queryable(f"{base}/offers/**", answer))
elif what == "heartbeats":  # of publishers that are not there, under everybody's key
    for n in range(number):
        session.put(f"{base}/rollouts/{made_up(n % 8)}/@adv/pub/{n + 1:x}/1/_", b"\\x00" * 4)
elif what == "signed":
    from test_network import Who
    from shoal.transports.zenoh.key_expressions import Keys
    from shoal.transports.zenoh.offers import OfferedRollouts
    keys = Keys("lagoon")
    fakes = []
    for n in range(number):
        who = Who(f"fake {n}")
        offered = OfferedRollouts(keys, who)
        offered.put(b"%d" % n)
        fakes.append((keys.offers(who.id), offered.answer("")[0]))
    def answer(query):
        for key, data in fakes:
            if query.key_expr.intersects(key):
                query.reply(key, data)
        query.drop()
    keep.append(session.declare_queryable(f"{base}/offers/**", answer))
print("ready", flush=True)
time.sleep(600)
"""


@contextmanager
def flood(what: str, where: str, number: int) -> Iterator[None]:
    words = [sys.executable, "-c", FLOOD, what, where, str(number), str(Path(__file__).parent)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield
        finally:
            process.kill()


@contextmanager
def relay(where: str) -> Iterator[None]:
    """One that bounds nobody: the attackers might have as many addresses as they like."""
    words = [sys.executable, "-u", "-m", "shoal", "relay", "--listen", where, "--exempt", "127.0.0.1"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("relay on")
            yield
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("what", "number"),
    [
        ("tokens", NUMBER),
        ("silent queryables", QUERYABLES),
        ("garbage answers", NUMBER),
    ],
)
def test_made_up_nodes_displace_nobody_and_hide_nobody(what: str, number: int) -> None:
    where = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        honest = [Link(f"honest {n}", connect=[where]) for n in range(8)]
        established = Link("established", connect=[where])
        links = [*honest, established]
        try:
            for one in honest:
                one.sends(1)
            until(lambda: established.listens_to(*honest) and all(established.rounds_of(one) for one in honest))
            process = psutil.Process()
            before = sum(process.cpu_times()[:2])
            stack.enter_context(flood(what, where, number))
            for round in range(2, 6):
                for one in honest:
                    one.sends(round)
                established.need(live=0, wanted=4)  # whatever it lacks
                until(lambda round=round: all(round in established.rounds_of(one) for one in honest))
            assert established.listens_to(*honest)
            new = Link("new", connect=[where])
            links.append(new)
            until(lambda: sum(new.listens_to(one) for one in honest) >= 4)
            until(lambda: sum(bool(new.rounds_of(one)) for one in honest) >= 4)
            assert established.listens_to(*honest)
            spent = sum(process.cpu_times()[:2]) - before
            print(f"{number} {what}: ten nodes spent {spent:.1f} s of processor")
            assert spent < 30, "ten nodes spend processor time on nodes that nobody has heard"
        finally:
            for link in links:
                link.close()


def test_signed_nodes_that_bring_nothing_displace_nobody() -> None:
    """Keys are free, so anybody can sign as many offers as he likes. Who delivers keeps its place all the same."""
    where = f"127.0.0.1:{free_port()}"
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        honest = [Link(f"honest {n}", connect=[where]) for n in range(4)]
        established = Link("established", connect=[where])
        try:
            for one in honest:
                one.sends(1)
            until(lambda: all(established.rounds_of(one) for one in honest))
            stack.enter_context(flood("signed", where, 1000))
            until(lambda: established.status()["peers"] >= 10)
            for round in range(2, 24):
                for one in honest:
                    one.sends(round)
                established.need(live=0, wanted=4)
                until(lambda round=round: all(round in established.rounds_of(one) for one in honest))
                assert established.listens_to(*honest)
        finally:
            for link in (*honest, established):
                link.close()
