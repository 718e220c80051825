"""A live swarm in the window: what nodes say of themselves, heard over real sockets, and what strangers may say."""

from __future__ import annotations

import json
import time
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import msgspec
import pytest
from strangers import SWARM, Node, Program, address, program, relay
from swarm_entries import signed
from test_network import until
from test_watch_server import ask
from watched import HOSTILE

pytest.importorskip("starlette")
pytest.importorskip("duckdb")

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.identity.secret import read_secret
from shoal.transports.zenoh.key_expressions import Keys
from shoal.transports.zenoh.session import TransportOptions, open_session, options_of
from shoal.wire.notices import MAX_LESSONS, Lesson, Limit, Notice, seal_notice
from shoal_host.host.keys import host_keys
from shoal_host.invitations.invitation import written
from shoal_web.serving.guard import Access
from shoal_web.watch import swarm as heard
from shoal_web.watch.server import make_app
from shoal_web.watch.source import Parameters
from shoal_web.watch.sources import Sources
from shoal_web.watch.swarm import Heard, SwarmSource, open_swarm

ADA, BOB = Identity.generate(), Identity.generate()


def said(key: bytes, round: int, **more: Any) -> Notice:
    plain = Notice(1, SWARM, key, 1e9 + round, round, "guppy", 0.25, None, (Lesson(BOB.name, 1, 0, "gcd"),))
    return msgspec.structs.replace(plain, **more)


def key(at: int) -> bytes:
    return at.to_bytes(32, "big")


# What is kept.


def test_old_notices_that_are_sent_again_neither_count_nor_silence_their_sender() -> None:
    book, old = Heard(), said(ADA.public, 400)
    now = said(ADA.public, 3, time=2e9)
    assert book.add(old, 1000.0)
    assert book.add(now, 1100.0)
    for _ in range(50):
        assert not book.add(old, 1101.0)
        assert not book.add(now, 1101.0)
    assert book.add(said(ADA.public, 4, time=2e9 + 1), 1101.0)


def test_who_is_limited_is_said_by_others_and_ends_with_their_next_notice() -> None:
    book = Heard()

    def limits() -> dict[str, int]:
        return {line["name"]: line["limited_by"] for line in book.lines(0.0)}

    book.add(said(ADA.public, 1, limited=(Limit(BOB.name, 8, 0.2), Limit(ADA.name, 8, 0.2))), 60)
    book.add(said(BOB.public, 1, learned=()), 61)
    assert limits() == {ADA.name: 0, BOB.name: 1}, "what a node says of itself does not count"
    book.add(said(ADA.public, 2), 120)
    assert limits() == {ADA.name: 0, BOB.name: 0}


def test_the_first_and_the_last_share_and_the_mean_of_the_last_rewards() -> None:
    book = Heard()
    for minute in range(1, 21):
        told = said(ADA.public, minute, reward=minute / 20, pass_at_1={1: 0.25, 5: 0.75, 9: 0.5}.get(minute))
        book.add(told, 60.0 * minute)
    [line] = book.lines(1200.0)
    assert (line["held_out_first"], line["held_out"]) == (0.25, 0.5)
    assert line["reward"] == pytest.approx(sum(range(11, 21)) / 200)


def test_who_says_to_have_learned_from_whom() -> None:
    book = Heard()
    for round in range(3):
        book.add(said(ADA.public, round, learned=(Lesson(BOB.name, 1, 0, "gcd"), Lesson(ADA.name, 1, 0, "gcd"))), 1.0)
    book.add(said(BOB.public, 1, learned=()), 2.0)
    edge = {"maker": BOB.name, "node": ADA.name, "peer": True, "rollouts": 3, "share": 1.0}
    assert book.edges() == {"edges": [edge], "more": False}
    ada, bob = book.lines(3.0)
    assert (ada["taken"], ada["given"], bob["given"], bob["ago"]) == (3, 0, 3, 1.0)


def attend(book: Heard, keys: list[bytes], minutes: range, **more: Any) -> None:
    """Each of `keys` speaks once a minute."""
    for minute in minutes:
        for at in keys:
            book.add(said(at, minute, **more), 60.0 * minute)


@pytest.mark.parametrize("liars", [200, 5000])
def test_liars_who_come_later_hide_nobody(liars: int) -> None:
    book, honest = Heard(), [key(at) for at in range(8)]
    attend(book, honest, range(10), reward=0.25, pass_at_1=0.5)
    crowd = tuple(Lesson(f"nobody-{at}", 1, 0, "gcd") for at in range(MAX_LESSONS))
    for minute in range(10, 14):
        attend(book, honest, range(minute, minute + 1), reward=0.25, pass_at_1=0.5)
        attend(book, [key(100 + at) for at in range(liars)], range(minute, minute + 1), reward=1.0, learned=crowd)
    lines = book.lines(900.0)
    assert [line["id"] for line in lines[:8]] == [at.hex() for at in honest]
    assert len(lines) + book.more == 8 + liars
    names = {line["name"] for line in lines[:8]}
    edges = book.edges()
    assert len(edges["edges"]) <= 400
    assert edges["more"]
    assert names <= {edge["node"] for edge in edges["edges"]}
    assert all(edge["share"] <= 1 for edge in edges["edges"])


def test_a_node_gets_its_place_however_many_fresh_keys_come_between(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard, "PLACES", 50)
    book = Heard()
    for minute in range(heard.PROVEN):
        attend(book, [ADA.public], range(minute, minute + 1))
        attend(book, [key(1000 * minute + at) for at in range(1000)], range(minute, minute + 1))
    assert len(book.lines(200.0)) == 50
    assert book.lines(200.0)[0]["name"] == ADA.name
    assert book.more == 1000 * heard.PROVEN + 1 - 50


def test_those_who_keep_speaking_keep_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heard, "PLACES", 2)
    book = Heard()
    attend(book, [ADA.public, BOB.public], range(5))
    attend(book, [ADA.public, *map(key, range(9))], range(5, 50, 5))
    assert {line["name"] for line in book.lines(3000.0)} == {ADA.name, BOB.name}
    attend(book, [ADA.public, key(0)], range(50, 80, 5))  # BOB has said nothing for more than an hour
    assert {line["id"] for line in book.lines(4800.0)} == {ADA.id, key(0).hex()}


def test_one_key_has_a_rate_and_what_others_send_again_does_not_count_towards_it() -> None:
    book = Heard()
    assert sum(book.add(said(ADA.public, at), 1.0) for at in range(100)) == heard.BURST
    assert not any(book.add(said(ADA.public, 3), 100.0) for _ in range(100))
    assert book.add(said(ADA.public, 100), 100.0)
    assert book.add(said(BOB.public, 1), 100.0)


def test_one_node_is_kept_within_bounds() -> None:
    book = Heard()
    for at in range(2 * heard.MAKERS):
        book.add(said(ADA.public, at, learned=(Lesson(f"maker-{at}", 1, 0, "gcd"),)), 60.0 * at)
    assert len(book.edges()["edges"]) == heard.MAKERS


# Over sockets.

network = pytest.mark.network
slow = pytest.mark.slow


@network
def test_notices_come_through_a_relay_and_what_is_none_does_not(tmp_path: Path) -> None:
    where = address()
    options = TransportOptions(connect=(where,))
    with relay(where), closing(SwarmSource(SWARM, options)) as source, open_session(options) as session:
        until(lambda: not source.summary()["trouble"])

        def tell(notice: Notice, identity: Identity) -> None:
            session.put(Keys(SWARM).notices(identity.id), seal_notice(notice, identity))

        names = [text[:250] for text in HOSTILE]
        lessons = tuple(Lesson(name, 1, 0, name) for name in names)
        now = time.time()
        tell(said(ADA.public, 400, reward=1.0), ADA)  # of long ago
        tell(said(ADA.public, 1, time=now, reward=1.0), BOB)  # of another key
        session.put(Keys(SWARM).notices(ADA.id), b"garbage")
        first = said(ADA.public, 7, time=now, model=names[0], learned=lessons)
        until(lambda: not tell(first, ADA) and source.brief()["live"])
        page = make_app(Sources([source]), Access())
        answer = ask(page, f"/api/runs/{source.id}/summary")
        assert answer.headers["content-type"] == "application/json"
        [line] = answer.json["nodes"]
        assert (line["name"], line["id"], line["model"], line["round"]) == (ADA.name, ADA.id, names[0], 7)
        assert answer.json["views"] == ["progress", "swarm"]
        assert "own word" in answer.json["about"]
        edges = ask(page, f"/api/runs/{source.id}/graph").json["edges"]
        assert {edge["maker"] for edge in edges} == {each[: heard.LETTERS] for each in names}
        for what in ("rollouts", "rollout?part=1&row=1"):
            assert ask(page, f"/api/runs/{source.id}/{what}").status == 404
        before = source.version
        second = said(ADA.public, 8, time=now + 1)
        until(lambda: not tell(second, ADA) and source.version > before)  # again: it may be too soon
        assert source.summary()["notices"] == 2


@pytest.mark.slow
@network
def test_a_relay_that_is_not_there_is_trouble_until_it_comes() -> None:
    where = address()
    with closing(SwarmSource(SWARM, TransportOptions(connect=(where,)))) as source:
        until(lambda: "answers" in source.summary()["trouble"])
        with relay(where):
            until(lambda: source.summary()["trouble"] == "")


@network
def test_a_private_swarm_is_heard_by_those_who_have_its_secret(tmp_path: Path) -> None:
    where, file = address(), tmp_path / "secret"
    file.write_text("a secret of the reef")
    secret = read_secret(file, SWARM)
    options = TransportOptions(connect=(where,))
    with (
        relay(where),
        closing(open_swarm({"name": SWARM, "connect": [where], "secret_file": str(file)})) as inside,
        closing(open_swarm({"name": SWARM, "connect": [where]})) as outside,
        open_session(options) as session,
    ):
        until(lambda: not inside.summary()["trouble"] and not outside.summary()["trouble"])
        at = Keys(SWARM, secret).notices(ADA.id)
        told = secret.lock(at, seal_notice(said(ADA.public, 1, time=time.time()), ADA, secret.context))
        until(lambda: session.put(at, told) or inside.brief()["live"])
        assert not outside.brief()["live"]


def test_what_cannot_be_reached_at_all_is_said_at_once(tmp_path: Path) -> None:
    for swarm, endpoints, network, wrong in (
        ("a reef", [], {}, "letters"),
        (SWARM, ["nowhere"], {}, "no endpoint"),
        (SWARM, ["127.0.0.1:1"], {"secret_file": str(tmp_path / "absent")}, "secret"),
        (SWARM, ["127.0.0.1:1"], {"tls": str(tmp_path / "absent")}, "certificates"),
    ):
        with pytest.raises(UserError, match=wrong):
            open_swarm({"name": swarm, "connect": endpoints, **network})


@pytest.mark.slow
@network
def test_an_invitation_is_all_that_it_takes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Address, name, certificate and secret are the invitation's, as for who joins."""
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    host, where = host_keys(tmp_path, ["127.0.0.1"], private=True), f"tls/{address()}"
    now = int(time.time())
    entry = {"name": SWARM, "relays": (where,), "certificate": host.fingerprint, "signed": now, "expires": now + 60}
    word = written(signed(host.identity, host.secret, **entry))
    assert host.secret_file
    secret, at = read_secret(host.secret_file, SWARM), address()
    words = ("watch", "--no-open", "--listen", at, "--swarm", word)
    link = TransportOptions(connect=(where,), ca=host.certificate)
    with (
        relay(where, "--certificate", host.certificate, "--key", host.certificate_key),
        program(*words, says="watching") as window,
        open_session(link) as session,
    ):
        assert f"{SWARM} (private)" in window.said
        assert host.identity.name in window.said
        key = Keys(SWARM, secret).notices(ADA.id)
        told = secret.lock(key, seal_notice(said(ADA.public, 1, time=time.time()), ADA, secret.context))

        def is_live() -> bool:
            with urlopen(f"http://{at}/api/runs", timeout=30) as reply:
                [one] = json.load(reply)["runs"]
            return bool(one["live"])

        until(lambda: session.put(key, told) or is_live())
        assert Program(("watch", "--swarm", word, where)).wait() == 2


@network
@slow
@pytest.mark.timeout(600)
def test_two_nodes_that_learn_from_each_other(tmp_path: Path) -> None:
    where = address()
    config = Config.model_validate({"network": {"name": SWARM, "connect": [where]}})
    words = (where, "--swarm", SWARM)
    with (
        relay(where),
        closing(SwarmSource(SWARM, options_of(config.network))) as source,
        Node(tmp_path / "one", *words) as one,
        Node(tmp_path / "two", *words) as two,
    ):
        until(lambda: len(source.graph(Parameters())["edges"]) == 2, 300)
        names = {node.status["name"] for node in (one, two)}
        assert {line["name"] for line in source.summary()["nodes"]} == names
        assert {(edge["maker"], edge["node"]) for edge in source.graph(Parameters())["edges"]} == {
            tuple(names), tuple(names)[::-1],
        }  # fmt: skip
        end = time.monotonic() + 120
        while time.monotonic() < end and not all(line["reward"] is not None for line in source.summary()["nodes"]):
            time.sleep(0.5)
        assert {line["model"] for line in source.summary()["nodes"]} == {"guppy"}
