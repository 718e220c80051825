"""What an outsider on the relay learns of a private swarm: sizes and times of messages, and nothing else."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import zenoh
from fakes import rollout
from strangers import TASKS, relay
from strangers import rollout as drawn_rollout
from test_network import Link, Who, free_port, until

from shoal.identity.secret import Secret, read_secret
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.session import TransportOptions, open_session
from shoal.wire.notices import Lesson, Notice, seal_notice
from shoal.wire.rollouts import seal


def test_an_outsider_sees_neither_names_nor_ids_nor_texts(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("0123456789abcdef")
    secret = read_secret(file, "lagoon")
    where = f"127.0.0.1:{free_port()}"
    seen: list[tuple[str, bytes]] = []
    asked: list[str] = []
    lock = threading.Lock()

    def overhear(sample: zenoh.Sample) -> None:
        with lock:
            seen.append((str(sample.key_expr), sample.payload.to_bytes()))

    def question(query: zenoh.Query) -> None:
        asked.append(str(query.selector))
        query.drop()

    with relay(where), open_session(TransportOptions(connect=(where,))) as outsider:
        # a relay carries shoal/** only
        subscribers = [outsider.declare_subscriber(key, overhear) for key in ("**", "shoal/**")]
        queryable = outsider.declare_queryable("shoal/**", question)
        ada, bob = (Link(name, secret=secret, connect=[where]) for name in ("ada", "bob"))
        try:
            until(lambda: ada.listens_to(bob) and bob.listens_to(ada))
            who = Who("ada")
            sent = drawn_rollout(who, 1, 0, ["a very private answer"], TASKS)
            ada._seal = lambda one: seal(one, who, "lagoon", time.time(), context=secret.context)
            ada.share([sent])
            lesson = Lesson("otter", 1, 0, "private_task")
            notice = Notice(1, "lagoon", who.public, time.time(), 1, "Qwen/Private", learned=(lesson,))
            ada._told.put([seal_notice(notice, who, secret.context)])
            until(lambda: len(seen) >= 2 and bob.status()["received"]["messages"] >= 1)
            for reply in outsider.get("shoal/**", target=zenoh.QueryTarget.ALL, timeout=3.0):
                if reply.ok is not None:
                    overhear(reply.ok)
        finally:
            ada.close()
            bob.close()
    assert len(subscribers) == 2
    assert queryable
    assert len(seen) >= 4  # a rollout, a notice and two offers
    assert asked
    everything = b"\n".join(key.encode() + b" " + data for key, data in seen) + "\n".join(asked).encode()
    who = Who("ada"), Who("bob")
    ids = [part for one in who for part in (one.public, one.id.encode(), one.name.encode())]
    for word in (b"lagoon", b"Private", b"private_task", b"answer", b"otter", b"chain_sum", *ids):
        assert word not in everything
    assert bob.gate.given[0][1]  # and a member has it in the clear
    assert b"a very private answer" in bob.gate.given[0][1]


def test_what_was_changed_or_moved_does_not_open() -> None:
    secret, keys = Secret(b"s" * 32), Keys("lagoon", Secret(b"s" * 32))
    key, other = keys.rollouts(Who("ada").id), keys.rollouts(Who("bob").id)
    data = secret.lock(key, rollout().encode())
    assert secret.unlock(key, data) == rollout().encode()
    assert secret.lock(key, b"") != secret.lock(key, b"")
    flipped = bytes([data[0] ^ 1]) + data[1:]
    for at, changed in ((other, data), (key, data[:-1]), (key, data[:20]), (key, b""), (key, flipped)):
        assert secret.unlock(at, changed) is None
    assert Secret(b"t" * 32).unlock(key, data) is None
