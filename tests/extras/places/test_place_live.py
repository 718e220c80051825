"""Real processes that share through a place while things go wrong."""

from __future__ import annotations

import datetime
import functools
import http.server
import ipaddress
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from archives import envelope, write_archive
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from test_network import free_port, until
from test_transports import Node

from shoal.identity.keys import Identity
from shoal.runs.folder import read_metrics
from shoal_extras.archive.reader import read_groups
from shoal_extras.places import store

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
FEW = ["--eval-every", "0", "--eval-questions", "1", "--eval-samples", "1", "--checkpoint-every", "0", "--threads", "1"]
BEHIND = (
    "import sys, time; now = time.time; time.time = lambda: now() - {}; import shoal.cli.main as m; sys.exit(m.main())"
)
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Starts `shoal` with these words. `home`: whose identity it has; `behind`: seconds of its clock."""
    with ExitStack() as stack:

        def begin(*words: object, home: str = "home", behind: float = 0.0) -> subprocess.Popen[str]:
            program = ["-c", BEHIND.format(behind)] if behind else ["-m", "shoal"]
            process = stack.enter_context(
                subprocess.Popen(
                    [sys.executable, *program, *map(str, words)],
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    cwd=tmp_path,
                    env=os.environ | {"SHOAL_HOME": str(tmp_path / home), "COLUMNS": "200"},
                )
            )
            stack.callback(process.kill)
            return process

        yield begin


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


def status(run: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads((run / "swarm.json").read_text())
    except (OSError, ValueError):
        return {}
    return found


def admitted(run: Path) -> int:
    return int(status(run).get("admission", {}).get("admitted", 0))


def rounds(run: Path) -> int:
    return len(read_metrics(run)) if (run / "metrics.jsonl").exists() else 0


def test_nodes_train_on_while_their_place_is_away(tmp_path: Path, shared: Path, start: Start) -> None:
    runs = [tmp_path / name for name in ("ada", "bob")]
    for run in runs:
        start("join", shared, "--rounds", "1000000", *FEW, "--out", run, home=f"home-{run.name}")
    until(lambda: all(admitted(run) > 3 for run in runs), 120)
    shared.rename(away := tmp_path / "away")
    until(lambda: all("what this node shares waits here" in status(run).get("warning", "") for run in runs), 90)
    before = [rounds(run) for run in runs]
    until(lambda: all(rounds(run) > then + 3 for run, then in zip(runs, before, strict=True)), 60)
    away.rename(shared)
    had = [admitted(run) for run in runs]
    until(lambda: all(admitted(run) > then + 3 for run, then in zip(runs, had, strict=True)), 90)
    until(lambda: all("waits here" not in status(run).get("warning", "waits here") for run in runs), 90)


def test_two_processes_with_one_identity_lose_nothing(tmp_path: Path, shared: Path, start: Start) -> None:
    """Both write through one outbox; others hear each round of a key once."""
    two = [start("join", shared, "--rounds", "12", *FEW, "--out", tmp_path / name, home="same") for name in "ab"]
    other = tmp_path / "other"
    start("join", shared, "--rounds", "1000000", *FEW, "--out", other, home="another")
    said = [process.communicate(timeout=200)[0] for process in two]
    assert "Traceback" not in "".join(said)
    until(lambda: admitted(other) > 3, 60)


def test_a_clock_that_is_days_behind_is_named(tmp_path: Path, shared: Path, start: Start) -> None:
    start("join", shared, "--rounds", "1000000", *FEW, "--out", tmp_path / "ada")
    until(lambda: any(shared.rglob("2*-*-*")), 90)
    late = tmp_path / "late"
    start("join", shared, "--rounds", "1000000", *FEW, "--out", late, home="home-late", behind=3 * 86_400)
    until(lambda: "is the clock of this machine wrong?" in json.dumps(status(late)), 90)


def test_following_can_be_interrupted_and_killed_and_goes_on(tmp_path: Path, shared: Path, start: Start) -> None:
    start(
        "join", shared, "--rounds", "1000000", *FEW, "--only", "chain_sum", "--out", tmp_path / "ada", home="home-ada"
    )
    until(lambda: any(shared.rglob("2*-*-*")), 90)
    archive, words = tmp_path / "kept", ("archive", shared, tmp_path / "kept", "--only", "chain_sum")
    known: set[bytes] = set()
    for number, how in enumerate((signal.SIGINT, signal.SIGKILL, signal.SIGINT)):
        follower = start(*words, home="archiver")
        until(lambda: (archive / "groups").is_dir(), 60)
        count = len(list(shared.rglob("2*-*-*")))
        until(lambda count=count: len(list(shared.rglob("2*-*-*"))) > count + 1, 60)
        with pytest.raises(subprocess.TimeoutExpired):
            follower.wait(5)
        follower.send_signal(how)
        said = follower.communicate(timeout=60)[0]
        assert "Traceback" not in said
        if how == signal.SIGINT:
            assert follower.returncode == 0, said
            found = [group.envelope for group in read_groups(archive)]
            assert len(found) == len(set(found)), "nothing twice"
            assert known < set(found), f"{number}: nothing lost, and more than before"
            known = set(found)


def test_a_place_or_an_archive_is_watched_as_it_is_typed(tmp_path: Path, shared: Path, start: Start) -> None:
    archive = write_archive(tmp_path / "kept", [envelope(Identity.generate(), round) for round in range(3)])
    (shared / "shoal" / "lagoon" / "open").mkdir(parents=True)
    for folder in (archive, shared):
        watcher = start("watch", folder, "--no-open", "--listen", f"127.0.0.1:{free_port()}")
        assert watcher.stdout is not None
        said = next(line for line in iter(watcher.stdout.readline, "") if "watching" in line)
        assert ("kept" if folder == archive else "lagoon") in said


@pytest.fixture
def https(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Path]]:
    """A web server with a certificate that this process trusts, and the folder that it shows."""
    key, now = ec.generate_private_key(ec.SECP256R1()), datetime.datetime.now(datetime.UTC)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    builder = (
        builder.serial_number(1)
        .not_valid_before(now - datetime.timedelta(1))
        .not_valid_after(now + datetime.timedelta(1))
    )
    address = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    certificate = builder.add_extension(address, critical=False).sign(key, hashes.SHA256())
    both = tmp_path / "server.pem"
    private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    both.write_bytes(private + certificate.public_bytes(Encoding.PEM))
    monkeypatch.setenv("SSL_CERT_FILE", str(both))
    shown = tmp_path / "shown"
    shown.mkdir()
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(shown))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    secure.load_cert_chain(both)
    server.socket = secure.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_port}/lagoon.members", shown / "lagoon.members"
    server.shutdown()
    server.server_close()


def test_members_by_https(https: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.FolderStore, "every", 0.05)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    url, path = https
    path.write_text("")
    places = [f"memory://{tmp_path}/{name}" for name in ("ada", "bob")]
    with ExitStack() as stack:
        nodes = [stack.enter_context(closing(Node({"connect": [url, place]}))) for place in places]
        lines = [node.status()["warning"].partition(f"{url}: ")[2] for node in nodes]
        path.write_text("\n".join(lines))
        for node in nodes:
            node.share([node.rollout()])
        late = stack.enter_context(closing(Node({"connect": [url, f"memory://{tmp_path}/late"]})))
        until(lambda: late.got_from(nodes[0]) == [1] and late.got_from(nodes[1]) == [1])
