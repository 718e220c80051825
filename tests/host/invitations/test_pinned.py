"""The relay's certificate: the one that the host has named is kept and trusted, and no other."""

from __future__ import annotations

import socket
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from swarm_entries import signed

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.transports.zenoh.session import TransportOptions, Unreachable, open_session
from shoal_host.host.keys import HostKeys, host_keys
from shoal_host.invitations import joining
from shoal_host.invitations.invitation import Invitation, written
from shoal_host.invitations.joining import show_invitation
from shoal_host.relay.forwarder import Limits
from shoal_host.relay.relay import running_relay

HOST = Identity.generate()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(joining, "PATIENCE", 3.0)
    return tmp_path / "home"


def keys(folder: Path) -> HostKeys:
    folder.mkdir()
    return host_keys(folder, ["127.0.0.1"], private=False)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def relay(of: HostKeys) -> Iterator[str]:
    where = f"tls/127.0.0.1:{free_port()}"
    options = TransportOptions(listen=(where,), certificate=of.certificate, key=of.certificate_key)
    with running_relay(options, Limits()):
        yield where


def invitation(where: str, of: HostKeys, secret: str = "") -> Invitation:
    return signed(HOST, secret, relays=(where,), certificate=of.fingerprint)


@pytest.mark.network
def test_the_named_certificate_is_kept_and_trusted(tmp_path: Path, home: Path) -> None:
    host, secret = keys(tmp_path / "host"), "correct-horse-battery"
    with relay(host) as where:
        files = joining.kept(invitation(where, host, secret))
        with open_session(TransportOptions(connect=(where,), ca=Path(files["tls"]))) as session:
            assert list(session.info.links())
    assert Path(files["secret_file"]).read_text().strip() == secret
    for path in (home / joining.FOLDER).iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert joining.kept(invitation(where, host)) == {"tls": files["tls"]}, "it is asked for once"
    with pytest.raises(UserError, match="another secret"):
        joining.kept(invitation(where, host, "of-somebody-else"))
    assert joining.kept(invitation(where, host, secret)) == files


@pytest.mark.network
def test_a_forged_certificate_is_refused(tmp_path: Path, home: Path) -> None:
    """Somebody stands between: first when the node joins, then when it comes back."""
    host, forger = keys(tmp_path / "host"), keys(tmp_path / "forger")
    with relay(forger) as where:
        with pytest.raises(UserError, match="another certificate") as caught:
            joining.kept(invitation(where, host, "correct-horse-battery"))
        assert "\n" not in str(caught.value)
        assert not (home / joining.FOLDER).exists()
        with pytest.raises(Unreachable, match="certificates do not fit"):
            open_session(TransportOptions(connect=(where,), ca=host.certificate))


def test_a_kept_file_that_somebody_changed_is_not_trusted(tmp_path: Path) -> None:
    host, forger = keys(tmp_path / "host"), keys(tmp_path / "forger")
    with relay(host) as where:
        path = Path(joining.kept(invitation(where, host))["tls"])
    path.write_bytes(forger.certificate.read_bytes())
    with pytest.raises(UserError, match="no relay of 'reef' answers"):
        joining.kept(invitation(where, host))


@pytest.mark.parametrize("says", [b"", b"HTTP/1.0 200 OK\r\n\r\n", b"\x16\x03\x01"])
def test_who_is_no_relay_costs_seconds_at_most(says: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    with ExitStack() as stack:
        server = stack.enter_context(socket.create_server(("127.0.0.1", 0)))

        def trickle() -> None:
            link, _ = server.accept()
            with link:
                link.sendall(says)
                over.wait(30)

        threading.Thread(target=trickle, daemon=True).start()
        stack.callback(over.set)
        began = time.monotonic()
        monkeypatch.setattr(joining, "PATIENCE", 0.3)
        assert joining.shown_certificate(f"tls/127.0.0.1:{server.getsockname()[1]}") is None
        assert time.monotonic() - began < 30


def test_the_next_relay_is_asked_where_one_is_down(tmp_path: Path) -> None:
    host = keys(tmp_path / "host")
    with relay(host) as where:
        two = signed(HOST, relays=(f"tls/127.0.0.1:{free_port()}", where), certificate=host.fingerprint)
        assert joining._fingerprint_in(Path(joining.kept(two)["tls"])) == host.fingerprint


@pytest.mark.parametrize("text", ["", "reef", "\xff"])
def test_a_damaged_key_is_not_that_of_a_host(text: str) -> None:
    path = joining.key_file("reef")
    path.parent.mkdir(parents=True)
    path.write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="ANOTHER HOST"):
        show_invitation([written(signed(HOST, signed=int(time.time()), expires=int(time.time()) + 60))])
