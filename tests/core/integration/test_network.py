"""The networked swarm, over real sockets on this machine. What is claimed is that things happen, not how fast."""

from __future__ import annotations

import hashlib
import json
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from fakes import question, rollout

from shoal.admission.admission import Claim
from shoal.admission.clocks import Clocks
from shoal.admission.intake import RECEIVED
from shoal.admission.limits import AdmissionLimits
from shoal.admission.peers import Differing, Peer
from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.secret import OPEN, Secret
from shoal.membership.connection import OUTBOX, SwarmConnection
from shoal.rollout import Completion, Part, Rollout, Scored
from shoal.transports.base import Unreachable
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.offers import CACHE, HISTORY, OfferedRollouts
from shoal.transports.zenoh.session import TransportOptions, open_session

SWARM = "lagoon"
MakeLink = Callable[..., "Link"]


class Who(Identity):
    """The same identity for the same name."""

    def __init__(self, name: str) -> None:
        super().__init__(Ed25519PrivateKey.from_private_bytes(hashlib.sha256(name.encode()).digest()))


class Gate:
    """An admission that takes what can be decoded, and keeps what it was given."""

    def __init__(self) -> None:
        self.refused: Counter[str] = Counter()
        self.given: list[tuple[str, bytes]] = []
        self.open = threading.Event()
        self.open.set()
        self.error: Exception | None = None
        self.differing = Differing()
        self.clocks = Clocks()

    def admit(self, messages: Sequence[tuple[str, bytes]]) -> list[Scored]:
        claims = [claim for id, data in messages if (claim := self.attribute(id, data))]
        return [self.examine(claim, patient=True)[0] for claim in claims]

    def attribute(self, id: str, data: bytes) -> Claim | None:
        self.open.wait()
        if self.error:
            raise self.error
        self.given.append((id, data))
        try:
            return Claim(Rollout.decode(data), bytes.fromhex(id), Peer(AdmissionLimits(), 0.0))
        except (ValueError, RecursionError):
            self.refused["malformed"] += 1
            return None

    def examine(self, claim: Claim, patient: bool) -> tuple[Scored, float]:
        return Scored(claim.rollout, question(1), (1.0, 0.0)), 0.0

    def status(self) -> dict[str, Any]:
        return {"admitted": len(self.given), "refused": dict(self.refused), "peers": []}

    def save(self, folder: Path) -> None:
        (folder / "gate.json").write_text(json.dumps(self.refused))

    def load(self, folder: Path) -> None:
        self.refused = Counter(json.loads((folder / "gate.json").read_text()))


class Link(SwarmConnection):
    """A connection with a `Gate`, which gathers what it receives and signs nothing."""

    def __init__(self, name: str, neighbours: int = 8, secret: Secret = OPEN, **network: Any) -> None:
        self.gate = Gate()
        self.got: list[Scored] = []
        self.keys = Keys(SWARM, secret)
        alone = {} if "connect" in network else {"listen": ["127.0.0.1:0"]}
        config = Config.model_validate({"network": {"name": SWARM} | alone | network})
        with patch("shoal.membership.connection.secret_of", return_value=secret):
            super().__init__(config, Who(name), admission=self.gate, neighbours=neighbours)  # type: ignore[arg-type]

    @property
    def subscriptions(self) -> Any:
        return self.transport.subscriptions  # type: ignore[attr-defined]

    def _seal(self, rollout: Rollout) -> bytes:
        return rollout.encode()

    def sends(self, *rounds: int) -> None:
        self.share([rollout(node=self.identity.name, round=round) for round in rounds])

    def rounds_of(self, other: SwarmConnection | Who) -> list[int]:
        """The rounds of `other` that came."""
        name = other.name if isinstance(other, Who) else other.identity.name
        self.got += self.receive()
        return sorted(scored.rollout.round for scored in self.got if scored.rollout.node == name)

    def listens_to(self, *others: SwarmConnection) -> bool:
        present, ids = set(self.status()["neighbours"]), {other.identity.id for other in others}
        return set(map(self.keys.secret.address, ids)) <= present and ids <= self.subscriptions.subscribers.keys()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def until(true: Callable[[], object], seconds: float = 60.0) -> float:
    """Waits until it is `true`; the seconds that it took."""
    start = time.monotonic()
    while not true():
        assert time.monotonic() - start < seconds, "it did not happen"
        time.sleep(0.01)
    return time.monotonic() - start


@pytest.fixture
def make_link() -> Iterator[MakeLink]:
    links: list[Link] = []

    def make(name: str, **options: Any) -> Link:
        links.append(Link(name, **options))
        return links[-1]

    yield make
    for link in links:
        link.gate.open.set()
        link.close()


@pytest.fixture
def two(make_link: MakeLink) -> tuple[Link, Link]:
    """A node that others connect to, and one that does."""
    port = free_port()
    ada = make_link("ada", listen=[f"127.0.0.1:{port}"])
    bob = make_link("bob", connect=[f"127.0.0.1:{port}"])
    until(lambda: ada.listens_to(bob) and bob.listens_to(ada))
    return ada, bob


@pytest.mark.network
def test_what_cannot_be_opened() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(UserError, match="another program listens"):
            open_session(TransportOptions(listen=(address,)))
    with pytest.raises(UserError, match="no address of this machine"):
        open_session(TransportOptions(listen=("192.0.2.1:7447",)))
    with pytest.raises(Unreachable, match="answers"):
        open_session(TransportOptions(connect=(f"127.0.0.1:{free_port()}",)))


@pytest.mark.network
def test_two_peers_share(two: tuple[Link, Link]) -> None:
    ada, bob = two
    ada.sends(1, 2, 3)
    bob.sends(7)
    until(lambda: bob.rounds_of(ada) == [1, 2, 3] and ada.rounds_of(bob) == [7])
    assert ada.seed_key == (SWARM, ada.identity.id)
    status = bob.status()
    assert json.loads(json.dumps(status)) == status
    assert (status["silo"], status["note"], status["peers"]) == (False, "", 1)
    assert (status["sent"]["messages"], status["received"]["messages"]) == (1, 3)
    assert (status["faults"], bob.refused) == (0, 0)
    assert {id for id, _ in bob.gate.given} == {ada.identity.id}  # and nothing that a sender could make up


@pytest.mark.network
def test_a_late_joiner_gets_what_was_last(two: tuple[Link, Link], make_link: MakeLink) -> None:
    ada, bob = two
    for last in (50, 100):
        ada.sends(*range(last - 49, last + 1))
        until(lambda last=last: len(bob.rounds_of(ada)) == last)
    late = make_link("late", connect=[f"{ada.config.network.listen[0]}"])
    until(lambda: len(late.rounds_of(ada)) == HISTORY)
    assert late.rounds_of(ada) == list(range(101 - HISTORY, 101))
    assert HISTORY <= CACHE


@pytest.mark.network
def test_without_a_link_nothing_waits(make_link: MakeLink) -> None:
    """Neither to share nor to close; and what was tried while alone is there for those who come."""
    port = free_port()
    silo = make_link("silo", connect=[f"127.0.0.1:{port}"])
    silo.sends(*range(3 * OUTBOX))
    assert silo.receive() == []
    until(lambda: "answers; training goes on" in silo.status()["note"])
    status = silo.status()
    assert status["silo"]
    assert status["silo_since"] <= time.time()
    assert status["sent"]["overflow"] == 2 * OUTBOX
    hub = make_link("hub", listen=[f"127.0.0.1:{port}"])
    until(lambda: hub.rounds_of(silo) and not silo.status()["silo"])
    until(lambda: hub.rounds_of(silo)[-1] == 3 * OUTBOX - 1)
    assert silo.status()["note"] == ""


PUBLISHER = """
import sys, time
sys.path.insert(0, sys.argv[1])
from test_network import Link
link = Link(sys.argv[2], connect=[sys.argv[3]])
link.sends(*range(1, 6))
time.sleep(600)
"""


@pytest.mark.network
def test_a_killed_peer_is_noticed_and_what_it_said_stays(make_link: MakeLink) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    ada = make_link("ada", listen=[endpoint])
    ada.gate.open.clear()
    bob = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(Path(__file__).parent), "bob", endpoint])
    until(lambda: ada.status()["received"]["messages"] >= 5)
    bob.kill()
    bob.wait()
    until(lambda: ada.status()["peers"] == 0 and ada.status()["silo"])
    ada.gate.open.set()
    until(lambda: ada.rounds_of(Who("bob")) == [1, 2, 3, 4, 5])


@pytest.mark.network
def test_a_peer_that_hangs_stalls_nobody(two: tuple[Link, Link]) -> None:
    """Zenoh's blocking sends would wait for it, and lose for the others what does not fit in the publisher's cache."""
    ada, bob = two
    endpoint = str(ada.config.network.listen[0])
    eve = subprocess.Popen([sys.executable, "-c", PUBLISHER, str(Path(__file__).parent), "eve", endpoint])
    try:
        until(lambda: len(ada.rounds_of(Who("eve"))) == 5 and ada.status()["peers"] == 2)
        until(lambda: len(bob.rounds_of(Who("eve"))) == 5)
        eve.send_signal(signal.SIGSTOP)
        ada._seal = lambda tried: tried.encode() + b" " * 50_000
        for round in range(300):
            ada.sends(round)
            time.sleep(0.015)  # a steady stream: it goes on while Zenoh waits, if it waits
        until(lambda: bob.status()["received"]["messages"] == 300 + 5, seconds=20)
    finally:
        eve.kill()
        eve.wait()


@pytest.mark.network
def test_a_slow_reader_loses_the_oldest_and_stalls_nobody(two: tuple[Link, Link]) -> None:
    ada, bob = two
    bob.gate.open.clear()
    for round in range(0, 600, 20):
        ada.sends(*range(round, round + 20))
        until(lambda: not ada._outbox)
    until(lambda: bob.status()["received"]["messages"] == 600)
    bob.gate.open.set()
    until(lambda: bob.rounds_of(ada)[-1:] == [599])
    assert len(bob.rounds_of(ada)) + bob.status()["received"]["overflow"] == 600
    assert bob.status()["received"]["overflow"] > 0
    assert ada.status()["sent"]["overflow"] == 0


@pytest.mark.network
def test_a_trainer_that_is_long_away_finds_the_newest(two: tuple[Link, Link]) -> None:
    ada, bob = two
    total = RECEIVED[0] + 200
    for round in range(0, total, 20):
        sent = min(round + 20, total)
        ada.sends(*range(round, sent))
        until(lambda sent=sent: len(bob.gate.given) == sent)
    until(lambda: bob.status()["received"]["overflow"] == 200)
    assert bob.rounds_of(ada) == list(range(200, total))


@pytest.mark.network
def test_a_hostile_publisher_does_no_harm(two: tuple[Link, Link]) -> None:
    ada, bob = two
    with open_session(TransportOptions(connect=tuple(ada.config.network.listen))) as hostile:
        key = bob.keys.rollouts(ada.identity.id)
        hostile.put(key, b"\x00garbage\xff" * 100)
        hostile.put(key, b"")
        hostile.put(key, b"\x91" * 200_000)  # a list in a list in a list ...
        hostile.put(key, b"x" * 300_000)  # above the limit of the link
        hostile.put(key, b"x" * 8_000_000)  # above that of the transport
        hostile.put(bob.keys.rollouts("0" * 64), b"to nobody")
        hostile.delete(key)
        made_up = [f"shoal/{SWARM}/open/offers/{end}" for end in ("abc/zzz", "x/y/z", "000/" + "0" * 64)]
        fakes = [hostile.declare_queryable(key, lambda query: query.reply(query.key_expr, b"me")) for key in made_up]
        until(lambda: bob.dropped["size"] == 1 and bob.gate.refused["malformed"] >= 3)
        ada.sends(1)
        until(lambda: bob.rounds_of(ada) == [1])
        assert bob.status()["peers"] == 1
        assert len(fakes) == 3
        assert bob.faults == 0
        assert all(len(data) <= 262_144 for _, data in bob.gate.given)


@pytest.mark.network
def test_faults_of_our_own_are_told_once_and_stop_nothing(
    two: tuple[Link, Link], caplog: pytest.LogCaptureFixture
) -> None:
    ada, bob = two
    bob.gate.error = KeyError("a bug")
    for number in range(3):
        ada.sends(number)
        until(lambda expected=number + 1: bob.status()["faults"] == expected)
    assert len([record for record in caplog.records if "admitting" in record.message]) == 1
    bob.gate.error = None
    ada.sends(9)
    until(lambda: bob.rounds_of(ada) == [9])
    ada._seal = lambda tried: 1 / 0  # type: ignore[assignment, return-value]
    ada.sends(10)
    until(lambda: ada.faults == 1)
    ada._seal = Rollout.encode
    ada.sends(11)
    until(lambda: bob.rounds_of(ada) == [9, 11])


@pytest.mark.network
def test_a_node_among_many_listens_to_a_few(make_link: MakeLink) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    hub = open_session(TransportOptions(listen=(endpoint,)))
    many = [Who(f"peer {number}") for number in range(60)]
    offered_by = {Keys(SWARM).offers(who.id): OfferedRollouts(Keys(SWARM), who) for who in many}
    peers = [
        hub.declare_queryable(key, lambda query, key=key, offered=offered: query.reply(key, offered.answer("")[0]))
        for key, offered in offered_by.items()
    ]
    node = make_link("node", connect=[endpoint])
    until(lambda: len(node.status()["neighbours"]) == len(node.subscriptions.subscribers) == 8)
    status = node.status()
    assert (status["wanted"], len(status["neighbours"])) == (8, 8)
    assert 16 <= status["peers"] <= 60
    before = set(node.subscriptions.subscribers)
    node.need(live=0, wanted=4)
    until(lambda: len(node.subscriptions.subscribers) == 10)
    assert before <= node.subscriptions.subscribers.keys()
    for _ in range(60):
        node.need(live=100, wanted=4)
    until(lambda: len(node.subscriptions.subscribers) == 2)
    assert node.faults == 0
    assert len(peers) == 60
    hub.close()


@pytest.mark.network
def test_another_secret_is_another_swarm(two: tuple[Link, Link], make_link: MakeLink) -> None:
    ada, bob = two
    endpoint = str(ada.config.network.listen[0])
    eve, mia, leo = (
        make_link(name, connect=[endpoint], secret=Secret(root * 32))
        for name, root in (("eve", b"e"), ("mia", b"m"), ("leo", b"m"))
    )
    mia.sends(1)
    ada.sends(2)
    until(lambda: bob.rounds_of(ada) == [2] and leo.rounds_of(mia) == [1])
    assert eve.status()["silo"]
    assert "nobody with this secret is heard" in eve.status()["note"]
    assert eve.status()["received"]["messages"] == 0
    assert (leo.status()["private"], bob.status()["private"]) == (True, False)
    assert leo.status()["peers"] == bob.status()["peers"] == 1


@pytest.mark.network
def test_what_waits_is_sent_before_leaving(make_link: MakeLink) -> None:
    endpoint = f"127.0.0.1:{free_port()}"
    ada = make_link("ada", listen=[endpoint])
    bob = Link("bob", connect=[endpoint])
    until(lambda: ada.listens_to(bob))
    large = Completion((Part("x" * 50_000),))
    bob.share([Rollout(question(1).id, "hash", (large,), bob.identity.name, round) for round in range(20)])
    bob.close()
    until(lambda: len(ada.rounds_of(bob)) == 20)
    until(lambda: ada.status()["silo"])


@pytest.mark.network
def test_save_and_load_are_the_admissions(make_link: MakeLink, tmp_path: Path) -> None:
    link = make_link("ada")
    link.gate.refused["age"] = 3
    link.save(tmp_path)
    link.gate.refused = Counter()
    link.load(tmp_path)
    assert link.refused == 3
    link.close()
    assert link.status()["links"] == 0
