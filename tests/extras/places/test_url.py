"""Places at URLs: an S3 server and an SSH server that the tests start, and a stand-in for the Hub with its client.

They need the packages of shoal[places] and moto[server]."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from hub_server import COMMITS, hub
from test_network import free_port, until
from test_transports import Node

from shoal_extras.places import store, transport
from shoal_extras.places.files import name_of, pack
from shoal_extras.places.store import open_store

pytestmark = pytest.mark.slow


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "USUAL", (0.2, 0.0))
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))


@contextmanager
def s3(monkeypatch: pytest.MonkeyPatch, port: int) -> Iterator[str]:
    server = pytest.importorskip("moto.server").ThreadedMotoServer("127.0.0.1", port)
    s3fs = pytest.importorskip("s3fs")
    server.start()
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_DEFAULT_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{port}")
    try:
        s3fs.S3FileSystem.clear_instance_cache()
        with suppress(FileExistsError):  # of an earlier test
            s3fs.S3FileSystem().mkdir("lagoon")
        yield "s3://lagoon/ours"
    finally:
        server.stop()


@contextmanager
def ssh(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[str]:
    """An SSH server of this process, which knows one key; the client knows its."""
    asyncssh, asyncio = pytest.importorskip("asyncssh"), pytest.importorskip("asyncio")
    pytest.importorskip("sshfs")
    home, port = folder / "user", free_port()
    (home / ".ssh").mkdir(parents=True)
    (folder / "shared").mkdir()
    host, user = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    user.write_private_key(home / ".ssh" / "id_ed25519")
    (home / ".ssh" / "known_hosts").write_text(f"[127.0.0.1]:{port} {host.export_public_key().decode()}")
    monkeypatch.setenv("HOME", str(home))
    known = asyncssh.import_authorized_keys(user.export_public_key().decode())
    loop, ready = asyncio.new_event_loop(), threading.Event()

    async def serve() -> None:
        await asyncssh.listen(
            "127.0.0.1", port, server_host_keys=[host], authorized_client_keys=known, sftp_factory=True
        )
        ready.set()

    def run() -> None:
        loop.create_task(serve())
        loop.run_forever()

    threading.Thread(target=run, daemon=True).start()
    assert ready.wait(10)
    yield f"ssh://ada@127.0.0.1:{port}{folder}/shared"
    loop.call_soon_threadsafe(loop.stop)


def share(place: str) -> None:
    """Two nodes learn from each other there, and a file is written, listed, read and removed."""
    store: Any = open_store(place)
    data = pack([("rollouts", b"x" * 5000)])
    name = name_of(data, "ab" * 32, time.time())
    assert list(store.names("shoal/none/open")) == []
    store.write(f"shoal/none/open/{name.path}", data)
    assert list(store.names("shoal/none/open")) == [name.hour]
    assert list(store.names(f"shoal/none/open/{name.hour}")) == [name.name]
    assert store.read(f"shoal/none/open/{name.path}", 10_000) == data
    assert store.read(f"shoal/none/open/{name.path}", 100) == data[:100]
    store.remove(f"shoal/none/open/{name.path}")
    store.remove(f"shoal/none/open/{name.path}")
    with pytest.raises(OSError, match=r".*"):
        store.read(f"shoal/none/open/{name.path}", 100)
    with closing(Node({"connect": [place]})) as ada, closing(Node({"connect": [place]})) as bob:
        ada.share([ada.rollout() for _ in range(3)])
        bob.share([bob.rollout()])
        until(lambda: ada.got_from(bob) == [1] and sorted(bob.got_from(ada)) == [1, 2, 3])
        assert (ada.faults, bob.faults) == (0, 0)
    with closing(Node({"connect": [place]})) as late:
        until(lambda: sorted(late.got_from(ada)) == [1, 2, 3])


def test_an_s3_server(monkeypatch: pytest.MonkeyPatch) -> None:
    with s3(monkeypatch, free_port()) as place:
        share(f"{place}/one")


def test_an_ssh_server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with ssh(monkeypatch, tmp_path) as place:
        share(place)


def test_memory(tmp_path: Path) -> None:
    share(f"memory://{tmp_path}")


def test_a_server_that_is_away_is_named_and_gets_all_when_it_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "SLOWEST", 1.0)
    with s3(monkeypatch, port := free_port()) as place:
        pass
    with closing(Node({"connect": [f"{place}/two"]})) as ada:
        ada.share([ada.rollout() for _ in range(3)])
        until(lambda: "what this node shares waits here" in ada.status()["warning"])
        with s3(monkeypatch, port), closing(Node({"connect": [f"{place}/two"]})) as bob:
            until(lambda: sorted(bob.got_from(ada)) == [1, 2, 3])
            until(lambda: ada.status()["warning"] == "")
        assert ada.faults == 0


HUB = """
import sys, time
from shoal_extras.places.files import name_of, pack
from shoal_extras.places.store import open_store
store = open_store("hf://datasets/ada/lagoon")
assert (store.every, store.pause) == (300.0, 30.0)
assert list(store.names("shoal/ours/open")) == []
names = []
for number in range(3):
    data = pack([("rollouts", b"%d" % number)])
    names.append(name_of(data, "ab" * 32, time.time()))
    store.write("shoal/ours/open/" + names[-1].path, data)
    assert store.read("shoal/ours/open/" + names[-1].path, 1000) == data
assert sorted({name.hour for name in names}) == sorted(store.names("shoal/ours/open"))
found = {name for hour in {name.hour for name in names} for name in store.names("shoal/ours/open/" + hour)}
assert found == {name.name for name in names}, found
store.remove("shoal/ours/open/" + names[0].path)
store.remove("shoal/ours/open/" + names[0].path)
try:
    for number in range(200):
        data = pack([("rollouts", b"more %d" % number)])
        store.write("shoal/ours/open/" + name_of(data, "ab" * 32, time.time()).path, data)
except OSError as error:
    print("refused:", error)
"""


def test_the_client_of_the_hub_against_a_stand_in_with_its_limits() -> None:
    """No Hub is asked: what is shown is that shoal and the Hub's client speak as the documentation says."""
    with hub() as (where, server):
        environment = os.environ | {"HF_ENDPOINT": where, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1"}
        done = subprocess.run([sys.executable, "-c", HUB], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "refused:" in done.stdout
    assert "429" in done.stdout
    assert len(server.commits) == COMMITS
    assert all(len(paths) == 1 for paths in server.commits), "a file is a commit"


def test_a_node_stays_within_the_hubs_commits() -> None:
    every, pause = store.TIMES["hf"]
    assert 3600 / pause <= COMMITS - 8
    assert 3600 / every <= COMMITS / 10
