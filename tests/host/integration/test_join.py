"""`shoal relay` and `shoal join` as programs, on loopback, with guppy."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from strangers import POND, SWARM, Honest, Node, Program, address, relay
from test_network import until
from test_relay import Authority

from shoal.config.settings import Config
from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.connection import SwarmConnection
from shoal.runs.folder import read_metrics
from shoal.runs.swarm_status import limited
from shoal.transports.zenoh.session import TransportOptions, open_session
from shoal_host.host.news import News
from shoal_web.watch.source import Parameters
from shoal_web.watch.swarm import SwarmSource

pytestmark = [pytest.mark.network, pytest.mark.slow]


def status(*words: object) -> str:
    command = [sys.executable, "-m", "shoal", "status", *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_three_nodes_learn_from_each_other(tmp_path: Path) -> None:
    where = address()
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        nodes = [stack.enter_context(Node(tmp_path / f"{n}", where, "--seed", n)) for n in range(3)]
        watcher = stack.enter_context(closing(SwarmSource(SWARM, TransportOptions(connect=(where,)))))

        def helped(node: Node) -> bool:
            rows = read_metrics(node.run) if (node.run / "config.toml").exists() else []
            sampled = sum(row.get("rollouts/sampled") or 0 for row in rows)
            makers = {maker for maker, *_ in node.learned_from()}
            return sampled > 20 and len(makers) == 2 and any(row.get("gradient/peers") or 0 for row in rows)

        until(lambda: all(helped(node) for node in nodes), 120)
        heard = {node["name"]: node for node in watcher.summary()["nodes"]}  # a watcher is told, too
        assert len(heard) == 3
        assert all(node["reward"] is not None and node["model"] == "guppy" for node in heard.values())
        assert {edge["maker"] for edge in watcher.graph(Parameters())["edges"]} == heard.keys()
        told = json.loads(status(nodes[0].run, "--json"))
        assert told["peers"] == 2
        assert len(told["neighbours"]) == 2
        assert not told["silo"]
        assert told["faults"] == 0
        assert told["admission"]["admitted"] > 0
        assert {peer["id"] for peer in told["admission"]["peers"]} == set(told["neighbours"])
        screen = status(nodes[0].run)
        assert "in touch, 1 link" in screen
        assert all(peer["name"] in screen for peer in told["admission"]["peers"])
        for node in nodes:
            assert node.program.stop(signal.SIGINT) == 130
            assert f"shoal join --resume {node.run}" in node.program.said
        for node in nodes:
            learned = node.learned_from()
            assert len(learned) == len(set(learned)) > 0, "learned from twice"
    screen = status(nodes[0].run)
    assert "ended" in screen


def test_a_killed_node_goes_on_and_knows_replays(tmp_path: Path) -> None:
    where = address()
    with relay(where), closing(Honest(where, POND, knows=True)) as peer, Node(tmp_path / "node", where) as node:
        until(lambda: node.status.get("peers") == 1, 90)

        def learned() -> list[int]:
            """The peer's rounds, as its rollouts were learned from."""
            peer.share(8)
            time.sleep(2.0)
            return [round for _, round, _ in node.learned_from()]

        until(lambda: len(learned()) >= 4)
        time.sleep(1.0)  # a round has been kept since
        node.program.process.kill()
        node.program.wait()
        before = node.notes[-1]
        node.start("--resume", node.run)
        until(lambda: len(node.notes) and node.notes[-1]["life"] != before["life"], 90)
        first = next(note for note in node.notes if note["life"] != before["life"])
        assert first["round"] in (before["round"], before["round"] + 1)
        # It asks for the peer's last rollouts again, and has had them.
        until(lambda: node.status.get("admission", {}).get("refused", {}).get("repeated", 0) >= 4)
        shared = peer.round
        until(lambda: any(round > shared for round in learned()))
        others = node.learned_from()
        assert len(others) == len(set(others))
        rounds = [row["round"] for row in read_metrics(node.run)]
        assert rounds == sorted(set(rounds))


def test_a_laptop_that_sleeps_for_a_minute_goes_on(tmp_path: Path) -> None:
    """The others go on meanwhile and see that it is silent. It is refused nothing for it, and nobody limits it."""
    where, said = address(), list[str]()
    with ExitStack() as stack:
        stack.enter_context(relay(where))
        nodes = [stack.enter_context(Node(tmp_path / f"{n}", where, "--seed", n)) for n in range(3)]
        source = stack.enter_context(closing(SwarmSource(SWARM, TransportOptions(connect=(where,)))))
        news = News(source, tmp_path / "no.log", said.append)
        sleeper, others = nodes[0], nodes[1:]

        def told(what: str) -> bool:
            """Whether a host would read this of the sleeper."""
            news.look()
            return any(f"{sleeper.status['name']} {what}" in line for line in said)

        until(lambda: all(len(node.notes) > 3 and node.learned_from() for node in nodes) and told("came"), 120)
        known, key = sleeper.status["name"], sleeper.status["id"]
        before = sleeper.notes[-1]["round"]
        rounds = [len(node.notes) for node in others]
        sleeper.program.process.send_signal(signal.SIGSTOP)
        until(lambda: told("is silent for "), 120)
        assert all(len(node.notes) > then + 3 for node, then in zip(others, rounds, strict=True))
        sleeper.program.process.send_signal(signal.SIGCONT)
        until(lambda: told("is back after "), 60)
        until(lambda: sleeper.notes[-1]["round"] > before + 3 and sleeper.status["peers"] == 2, 60)

        def later(node: Node) -> bool:
            """Whether `node` learned from what the sleeper tried after it woke."""
            return any(maker == known and round > before + 1 for maker, round, _ in node.learned_from())

        until(lambda: all(map(later, others)), 120)
        for node in others:
            [peer] = [one for one in node.status["admission"]["peers"] if one["id"] == key]
            assert not peer["muted"]
            assert peer["refused"].keys() <= {"age", "repeated"}, peer["refused"]
        for node in nodes:
            assert not limited(node.status)
            assert "Traceback" not in node.program.said


def test_a_relay_that_is_late_is_no_reason_to_wait(tmp_path: Path) -> None:
    where = address()
    with Node(tmp_path / "node", where) as node:
        until(lambda: len(node.notes) >= 3, 90)
        until(lambda: "answers; training goes on" in node.status.get("note", ""))
        assert node.status["silo"]
        assert f"none of tcp/{where}" in " ".join(status(node.run).split())
        assert not node.learned_from()
        with relay(where), closing(Honest(where, POND, knows=True)) as peer:
            until(lambda: node.status["peers"] == 1 and not node.status["silo"])

            def learned() -> bool:
                """What is shared once may be lost: the peer may not know yet who listens."""
                peer.share(8)
                time.sleep(1.0)
                return bool(node.learned_from())

            until(learned)
            assert node.status["note"] == ""
        until(lambda: node.status["silo"])
        rounds = len(node.notes)
        until(lambda: len(node.notes) > rounds + 3)


AHEAD = "import time\nright = time.time\ntime.time = lambda: right() + 150\n"


def test_a_clock_that_is_ahead_is_named_on_both_sides(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    where = address()
    (tmp_path / "sitecustomize.py").write_text(AHEAD)
    config = Config.model_validate({"round": {"nodes": 1}, "network": {"name": SWARM, "connect": [where]}})
    with relay(where), closing(SwarmConnection(config, Identity.generate())) as peer:
        monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")]))
        with Node(tmp_path / "node", where) as node:
            until(lambda: "behind this machine's" in node.status.get("note", ""), 150)
            until(lambda: "ahead of this machine's" in peer.status()["note"], 150)
            there, name = node.status["name"], peer.status()["name"]
            alone = f"alone: a clock is wrong: that of {there} is about "
            until(lambda: peer.status()["note"].startswith(alone), 150)
            assert peer.status()["dropped"]["future"] > 0
            until(lambda: f"that of {name} is about " in node.status.get("note", ""), 150)
            until(lambda: "a clock is wrong" in node.program.said, 150)


def test_another_secret_is_another_swarm_and_nobody_makes_a_node_end(tmp_path: Path) -> None:
    where = address()
    right, other = tmp_path / "right", tmp_path / "other"
    right.write_text("0123456789abcdef\n")
    other.write_text("fedcba9876543210\n")
    for file in (right, other):
        file.chmod(0o600)
    network = {"name": SWARM, "connect": [where], "secret_file": str(other)}
    config = Config.model_validate({"round": {"nodes": 1}, "network": network})
    with (
        relay(where),
        closing(SwarmConnection(config, Identity.generate())),
        Node(tmp_path / "node", where, "--secret-file", right) as node,
    ):
        until(lambda: "nobody with this secret is heard" in node.status.get("note", ""), 90)
        rounds = len(node.notes)
        until(lambda: len(node.notes) >= rounds + 3, 90)
        network = {"name": SWARM, "connect": [where], "secret_file": str(right)}
        config = Config.model_validate({"round": {"nodes": 1}, "network": network})
        with closing(SwarmConnection(config, Identity.generate())) as member:
            until(lambda: node.status.get("peers") == 1, 90)
            until(lambda: member.status()["peers"] == 1)
            until(lambda: member.admission.admitted >= 4)
            assert member.receive()
            assert node.status["private"]


def test_mutual_tls(tmp_path: Path) -> None:
    authority, other = Authority(tmp_path), Authority(tmp_path / "other")
    where = f"tls/{address()}"
    own, own_key = authority.issue("relay")
    certificate, key = authority.issue("node")
    forged, forged_key = other.issue("node")
    words = ("--ca", authority.path, "--mutual", "--certificate", own, "--key", own_key)
    with relay(where, *words), ExitStack() as stack:

        def node(name: str, *words: object) -> Node:
            return stack.enter_context(Node(tmp_path / name, where, *words))

        def tls(*files: Path | str) -> tuple[str, Path]:
            """A folder with an authority's certificate, a certificate and a key."""
            folder = Path(tempfile.mkdtemp(dir=tmp_path))
            for name, file in zip(("ca.pem", "certificate.pem", "key.pem"), files, strict=True):
                shutil.copy(file, folder / name)
            return "--tls", folder

        ca = ("--tls", authority.path)
        good = node("good", *tls(authority.path, certificate, key))
        until(lambda: good.status.get("links") == 1, 90)
        untrusting = tls(other.path, certificate, key)
        for words in (ca, tls(authority.path, forged, forged_key), untrusting):
            with closing(placed(where, *words)) as place:
                until(lambda place=place: "certificates do not fit" in place.status()["note"])
                assert where in place.status()["note"]
                assert place.status()["links"] == 0


def placed(where: str, *words: object) -> SwarmConnection:
    """A node's place, in this process, from words as on the command line."""
    names = [str(word).removeprefix("--").replace("-", "_") for word in words[::2]]
    network = {"name": SWARM, "connect": [where], **dict(zip(names, map(str, words[1::2]), strict=True))}
    return SwarmConnection(Config.model_validate({"round": {"nodes": 1}, "network": network}), Identity.generate())


def test_nodes_of_one_network_find_each_other(tmp_path: Path) -> None:
    with open_session(TransportOptions()) as one, open_session(TransportOptions()):
        end = time.monotonic() + 5
        while not one.info.links() and time.monotonic() < end:
            time.sleep(0.1)
        if not one.info.links():
            pytest.skip("no multicast here: two sessions did not find each other in 5 seconds")
    swarm = f"lan-{time.time_ns()}"
    with Node(tmp_path / "a", "--swarm", swarm) as a, Node(tmp_path / "b", "--swarm", swarm, "--seed", 1) as b:
        until(lambda: a.learned_from() and b.learned_from(), 120)
        assert a.status["links"] >= 1


WRONG = {
    "no port": ({"connect": ["relay.example.org"]}, "HOST:PORT"),
    "a port that is none": ({"connect": ["127.0.0.1:99999"]}, "HOST:PORT"),
    "another protocol": ({"connect": ["quic/127.0.0.1:80"]}, "HOST:PORT"),
    "a listener without a port": ({"listen": ["7447"]}, "HOST:PORT"),
    "no name of a swarm": ({"name": ""}, "1 to 64 letters, digits"),
    "a certificate without TLS": ({"connect": ["127.0.0.1:1"], "tls": __file__}, "tls/HOST:PORT"),
    "a secret that is not there": ({"secret_file": "/nowhere/secret"}, "cannot read the secret"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_a_place(name: str) -> None:
    network, right = WRONG[name]
    with pytest.raises(UserError, match=right):
        SwarmConnection(Config.model_validate({"round": {"nodes": 1}, "network": network}), Identity.generate())


@pytest.mark.parametrize(
    ("words", "right"),
    [
        (["nonsense"], "'nonsense' is no endpoint: write HOST:PORT"),
        (["127.0.0.1:1", "--swarm", "a/b"], "the swarm 'a/b' must have 1 to 64 letters, digits"),
        (["127.0.0.1:1", "--swram", "reef"], "did you mean '--swarm'"),
    ],
)
def test_nonsense_is_answered_with_what_is_right(words: list[str], right: str, tmp_path: Path) -> None:
    out = tmp_path / "run"
    join = Program(["join", *words, "--out", out], tmp_path / "home")
    assert join.wait(90) == 2
    assert right in join.said
    assert "Traceback" not in join.said
    assert not out.exists()
