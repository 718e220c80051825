"""Relays as programs of their own, and nodes that reach each other by them alone."""

from __future__ import annotations

import argparse
import contextlib
import datetime
import ipaddress
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import zenoh
from strangers import QUICK, program
from test_network import MakeLink, free_port, make_link, until

from shoal.errors import UserError
from shoal.runs.swarm_status import read_status
from shoal.transports.zenoh.session import (
    MAX_MESSAGE,
    TransportOptions,
    Unreachable,
    base_config,
    open_config,
    open_session,
)
from shoal_host.relay.command import HELP, LISTEN, add_arguments, command
from shoal_host.relay.forwarder import HELD, Limits
from shoal_host.relay.relay import relay_config
from shoal_web.watch.folder import FolderSource
from shoal_web.watch.swarm import SwarmSource

__all__ = ["make_link"]

RELAY = """
import argparse, sys
from shoal_host.relay.command import add_arguments, command
parser = argparse.ArgumentParser()
add_arguments(parser)
sys.exit(command(parser.parse_args(sys.argv[1:])))
"""
Relay = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def relay() -> Iterator[Relay]:
    """A maker of relays that are listening when it returns."""
    relays: list[subprocess.Popen[str]] = []

    def make(*arguments: str) -> subprocess.Popen[str]:
        words = [sys.executable, "-u", "-c", RELAY, *arguments]
        relays.append(subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
        line = relays[-1].stdout.readline()  # type: ignore[union-attr]
        assert line.startswith("relay on"), line + relays[-1].stdout.read()  # type: ignore[union-attr]
        return relays[-1]

    yield make
    for process in relays:
        process.kill()
        process.communicate()


def address() -> str:
    return f"127.0.0.1:{free_port()}"


@pytest.mark.network
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_relay_says_how_it_goes_and_stops_when_asked(relay: Relay, make_link: MakeLink, number: int) -> None:
    where = address()
    process = relay("--listen", where, "--status-every", "0.1")
    link = make_link("ada", connect=[where])
    until(lambda: link.status()["links"])
    assert process.stdout is not None
    while ", connections: 1" not in process.stdout.readline():
        pass
    with closing(SwarmSource(link.keys.swarm, TransportOptions(connect=(where,)))):  # as a window does
        while ", connections: 2" not in process.stdout.readline():
            pass
    process.send_signal(number)
    rest, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "Traceback" not in rest
    assert rest.splitlines()[-1].startswith("stopped; up 0:00:")


@pytest.mark.network
def test_nodes_share_by_a_relay(relay: Relay, make_link: MakeLink) -> None:
    where = address()
    relay("--listen", where)
    ada, bob, eve = (make_link(name, connect=[where]) for name in ("ada", "bob", "eve"))
    until(lambda: ada.listens_to(bob, eve) and bob.listens_to(ada, eve) and eve.listens_to(ada, bob))
    ada.sends(*range(40))
    bob.sends(1)
    until(lambda: all(len(link.rounds_of(ada)) == 40 for link in (bob, eve)) and ada.rounds_of(bob) == [1])
    late = make_link("late", connect=[where])
    until(lambda: late.rounds_of(ada) == list(range(24, 40)) and late.rounds_of(bob) == [1])


@pytest.mark.network
def test_three_relays_are_one_swarm(relay: Relay, make_link: MakeLink) -> None:
    first, second, third = address(), address(), address()
    relay("--listen", first, "--exempt", "127.0.0.1")
    relay("--listen", second, "--connect", first, "--exempt", "127.0.0.1")
    relay("--listen", third, "--connect", second)
    ada, bob, eve = (
        make_link("ada", connect=[first]),
        make_link("bob", connect=[second]),
        make_link("eve", connect=[third]),
    )
    until(lambda: ada.listens_to(bob, eve) and bob.listens_to(ada, eve) and eve.listens_to(ada, bob))
    for number, link in enumerate((ada, bob, eve)):
        link.sends(number)
    until(lambda: ada.rounds_of(bob) == [1] and ada.rounds_of(eve) == [2])
    until(lambda: eve.rounds_of(ada) == [0] and eve.rounds_of(bob) == [1])


@pytest.mark.network
def test_a_relay_that_is_not_named_is_cut(relay: Relay, make_link: MakeLink) -> None:
    first, second = address(), address()
    process = relay("--listen", first, "--status-every", "0.1")
    relay("--listen", second, "--connect", first)
    assert process.stdout is not None
    while "a relay that --exempt does not name" not in process.stdout.readline():
        pass
    ada, bob = make_link("ada", connect=[first]), make_link("bob", connect=[first])
    until(lambda: ada.listens_to(bob))


@pytest.mark.network
def test_a_relay_dies_and_returns(relay: Relay, make_link: MakeLink, capsys: pytest.CaptureFixture[str]) -> None:
    where = address()
    process = relay("--listen", where)
    ada, bob = make_link("ada", connect=[where]), make_link("bob", connect=[where])
    until(lambda: ada.listens_to(bob) and bob.listens_to(ada))
    ada.sends(1)
    until(lambda: bob.rounds_of(ada) == [1])
    process.kill()
    process.wait()
    until(lambda: ada.status()["silo"] and bob.status()["silo"])
    assert where in bob.status()["note"]
    ada.sends(2, 3)
    assert bob.rounds_of(ada) == [1]
    relay("--listen", where)
    back = until(lambda: not ada.status()["silo"] and not bob.status()["silo"])
    resumed = until(lambda: bob.rounds_of(ada) == [1, 2, 3])  # what it missed, without what it has
    with capsys.disabled():
        print(f" [both back {back:.1f} s after the relay, and what was missed {resumed:.1f} s later]", end="")
    bob.sends(4)
    until(lambda: ada.rounds_of(bob) == [4])
    assert ada.faults == bob.faults == 0


@pytest.mark.network
def test_a_node_goes_on_with_its_next_relay(relay: Relay, make_link: MakeLink) -> None:
    first, second = address(), address()
    process = relay("--listen", first, "--exempt", "127.0.0.1")
    relay("--listen", second, "--connect", first)
    ada, bob = make_link("ada", connect=[first, second]), make_link("bob", connect=[second, first])
    until(lambda: ada.listens_to(bob) and bob.listens_to(ada))
    process.kill()
    ada.sends(1)
    until(lambda: bob.rounds_of(ada) == [1])
    until(lambda: ada.status()["peers"] == 1)


@pytest.mark.network
def test_a_relay_that_is_late_is_waited_for(relay: Relay, make_link: MakeLink) -> None:
    where = address()
    ada, bob = make_link("ada", connect=[where]), make_link("bob", connect=[where])
    ada.sends(1)
    until(lambda: "answers" in ada.status()["note"])
    relay("--listen", where)
    until(lambda: bob.rounds_of(ada) == [1])


@pytest.mark.network
def test_a_relay_carries_nothing_else_and_bounds_the_rest(relay: Relay) -> None:
    where = address()
    relay("--listen", where, "--max-sessions", "2")
    options = TransportOptions(connect=(where,))
    got: list[str] = []
    with open_session(options) as one, open_session(options) as two:
        subscribers = [
            two.declare_subscriber(key, lambda sample: got.append(f"{sample.key_expr} {len(sample.payload)}"))
            for key in ("shoal/**", "other/**", "**")
        ]
        until(lambda: one.put("shoal/a", "x") or got)
        got.clear()
        with pytest.raises(Unreachable):
            open_session(options)
        one.put("other/a", "x")
        one.put("shoal/b", "x" * 600_000)
        one.put("shoal/b", "x" * 2_000_000)
        one.put("shoal/c", "x", congestion_control=zenoh.CongestionControl.BLOCK)
        until(lambda: "shoal/c 1" in got)
        assert {line.split()[0] for line in got} <= {"shoal/a", "shoal/c"}
        assert list(one.get("@/*/router/**", timeout=0.5)) == []
        assert len(subscribers) == 3


@pytest.mark.network
def test_an_address_gets_its_share_of_the_sessions(relay: Relay) -> None:
    where = address()
    process = relay("--listen", where, "--address-sessions", "2", "--status-every", "0.1")
    options = TransportOptions(connect=(where,))
    with open_session(options) as one, open_session(options):
        with pytest.raises(Unreachable, match="limits this machine's address: too many of one address"):
            open_session(options)
        with from_address(where, "127.0.0.2") as other:
            got: list[str] = []
            subscriber = other.declare_subscriber("shoal/a", lambda sample: got.append(sample.payload.to_string()))
            until(lambda: one.put("shoal/a", "x" * 200_000) or got)  # more than fits into one piece
            assert set(got) == {"x" * 200_000}
            subscriber.undeclare()
    assert process.stdout is not None
    while "too many of one address" not in process.stdout.readline():
        pass
    until(lambda: open_session(options).close() is None)  # places that became free are given again


@pytest.mark.network
def test_who_declares_too_much_is_cut(relay: Relay, make_link: MakeLink) -> None:
    where = address()
    process = relay("--listen", where, "--status-every", "0.1")
    ada, bob = make_link("ada", connect=[where]), make_link("bob", connect=[where])
    until(lambda: bob.listens_to(ada))
    session = from_address(where, "127.0.0.2")
    kept = [session.declare_queryable(f"shoal/{number}", lambda query: None) for number in range(5000)]
    assert process.stdout is not None
    while "declares too much" not in process.stdout.readline():
        pass
    ada.sends(1)
    until(lambda: bob.rounds_of(ada) == [1])
    assert len(kept) == 5000
    with contextlib.suppress(zenoh.ZError):  # a session that was cut may take longer to close than Zenoh waits
        session.close()


@pytest.mark.network
@pytest.mark.slow
def test_a_node_that_is_cut_later_reads_why_in_its_terminal_its_status_and_the_window(
    relay: Relay, tmp_path: Path
) -> None:
    """Real programs: a relay, a node at work, and sessions from the node's address that declare too much."""
    where = address()
    relay("--listen", where)
    run = tmp_path / "run"
    words = ("join", where, *QUICK, "--swarm", "lagoon", "--only", "chain_sum", "--out", run)
    told = f"the relay tcp/{where} limits this machine's address: it cut a connection from here: declares too much"
    with open_session(TransportOptions(connect=(where,))) as other:  # the same address: it takes nearly all there is
        held = [other.declare_queryable(f"shoal/{n}", lambda query: None) for n in range(HELD - 2)]
        with program(*words, home=tmp_path / "home") as node:
            until(lambda: told in " ".join(node.said.split()), 150)
            # It is told for a minute, and again when the relay cuts the next session: one of them is seen.
            until(lambda: told in read_status(run)["note"], 150)
            command = [sys.executable, "-m", "shoal", "status", str(run)]
            status = partial(subprocess.run, command, capture_output=True, text=True, check=True)
            until(lambda: told in " ".join(status().stdout.split()), 150)
            until(lambda: told in FolderSource(run, "run").summary()["warnings"], 150)
            for each in held:
                each.undeclare()
            until(lambda: read_status(run)["links"] == 1, 150)  # and it goes on


@pytest.mark.network
def test_an_exempt_address_has_no_limits(relay: Relay) -> None:
    where = address()
    relay("--listen", where, "--address-sessions", "1", "--exempt", "127.0.0.1")
    options = TransportOptions(connect=(where,))
    with open_session(options) as one, open_session(options) as two:
        got: list[Any] = []
        subscriber = two.declare_subscriber("shoal/a", got.append)
        until(lambda: one.put("shoal/a", "x") or got)
        subscriber.undeclare()


@pytest.mark.network
def test_an_address_in_use_is_told(relay: Relay) -> None:
    where = address()
    relay("--listen", where)
    with pytest.raises(UserError, match="another program listens"):
        command(arguments("--listen", where))


@pytest.mark.network
def test_mutual_tls(relay: Relay, make_link: MakeLink, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    where = f"tls/{address()}"
    own = authority.issue("relay")
    relay(
        "--listen",
        where,
        "--ca",
        str(authority.path),
        "--mutual",
        *("--certificate", str(own[0]), "--key", str(own[1])),
    )
    certificate, key = authority.issue("node")
    files = tmp_path / "tls"
    files.mkdir()
    for name, file in (("ca", authority.path), ("certificate", certificate), ("key", key)):
        (files / f"{name}.pem").write_bytes(Path(file).read_bytes())
    member = {"connect": [where], "tls": str(files)}
    ada, bob = make_link("ada", **member), make_link("bob", **member)
    until(lambda: ada.listens_to(bob))
    bob.sends(1)
    until(lambda: ada.rounds_of(bob) == [1])
    stranger = Authority(tmp_path / "stranger")
    forged, forged_key = stranger.issue("node")
    for options in (
        TransportOptions(connect=(where,), ca=authority.path),
        TransportOptions(connect=(where,), ca=authority.path, certificate=forged, key=forged_key),
        TransportOptions(connect=(where,), ca=stranger.path, certificate=certificate, key=key),
    ):
        with pytest.raises(Unreachable):
            open_session(options)


def test_arguments() -> None:
    assert HELP
    assert arguments().listen is None
    assert TransportOptions(listen=(LISTEN,)).listen == (LISTEN,)
    for wrong in (
        ["--max-sessions", "0"],
        ["--address-sessions", "0"],
        ["--status-every", "0"],
    ):
        with pytest.raises(UserError, match="above 0"):
            command(arguments(*wrong))
    with pytest.raises(UserError, match="HOST:PORT"):
        command(arguments("--listen", "7447"))
    with pytest.raises(UserError, match="IP address"):
        command(arguments("--exempt", "relay.example.org"))
    with pytest.raises(UserError, match="no address of this machine"):
        command(arguments("--listen", "192.0.2.1:7447"))


def test_what_a_relay_lets_through_is_denied_by_default() -> None:
    config = relay_config(TransportOptions(listen=(LISTEN,)), Limits(), "zenoh")
    assert config["access_control"]["default_permission"] == "deny"
    assert not config["adminspace"]["enabled"]
    assert not config["scouting"]["multicast"]["enabled"]
    assert config["transport"]["link"]["rx"]["max_message_size"] < MAX_MESSAGE  # each session may leave two unfinished
    assert config["transport"]["link"]["tx"]["queue"]["congestion_control"]["block"]["wait_before_close"] <= 10_000
    zenoh.Config.from_json5(str(zenoh.Config()))  # Zenoh's own form can be read again


def arguments(*words: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(words)


def from_address(where: str, source: str) -> zenoh.Session:
    """A session with a relay from another address of this machine."""
    config = base_config(TransportOptions(connect=(where,)))
    config["mode"] = "client"
    config["connect"] |= {"endpoints": [f"tcp/{where}#bind={source}:0"], "timeout_ms": 0}
    return open_config(config)


class Authority:
    """A certificate authority for 127.0.0.1."""

    def __init__(self, folder: Path) -> None:
        from cryptography.hazmat.primitives.asymmetric import ec

        folder.mkdir(exist_ok=True)
        self.folder = folder
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.path = folder / "ca.pem"
        self.path.write_bytes(self._sign("authority", self.key.public_key(), authority=True))

    def issue(self, name: str) -> tuple[Path, Path]:
        """Files with a certificate and its key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        key = ec.generate_private_key(ec.SECP256R1())
        certificate, secret = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        certificate.write_bytes(self._sign(name, key.public_key()))
        plain = serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain))
        return certificate, secret

    def _sign(self, name: str, public: Any, authority: bool = False) -> bytes:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes, serialization
        from cryptography.x509.oid import NameOID

        def named(text: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])

        now = datetime.datetime.now(datetime.UTC)
        certificate = (
            x509.CertificateBuilder()
            .subject_name(named(name))
            .issuer_name(named("authority"))
            .public_key(public)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(hours=1))
            .not_valid_after(now + datetime.timedelta(days=1))
            .add_extension(x509.BasicConstraints(ca=authority, path_length=None), critical=True)
            .add_extension(
                x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))]), critical=False
            )
            .sign(self.key, hashes.SHA256())
        )
        return certificate.public_bytes(serialization.Encoding.PEM)
