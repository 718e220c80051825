"""A shared folder, into which strangers write what they like."""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from test_network import until
from test_transports import SWARM, Node

from shoal.identity.keys import Identity
from shoal.transports import folder as folder_module
from shoal.wire.rollouts import seal


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(folder_module, "EVERY", 0.05)
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def ada(shared: Path) -> Iterator[Node]:
    with closing(Node({"transport": "folder", "connect": [str(shared)]})) as node:
        yield node


def put(folder: Path, data: bytes, name: str = "") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / (name or hashlib.blake2b(data, digest_size=16).hexdigest())
    path.write_bytes(data)
    return path


def folder_of(shared: Path, identity: Identity) -> Path:
    return shared / "shoal" / SWARM / "open" / "rollouts" / identity.id


def test_hostile_files_do_no_harm(shared: Path, ada: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bob, eve = Node({"transport": "folder", "connect": [str(tmp_path)]}), Identity.generate()
    good = seal(bob.rollout(), bob.identity, SWARM, time.time())
    elsewhere = put(tmp_path / "elsewhere", b"a file of this machine")
    mine, theirs = folder_of(shared, eve), folder_of(shared, bob.identity)
    put(mine, b"x" * 300_000)  # too large
    put(mine, b"half of a mess", name="0" * 32)  # not all there
    put(mine, b"not a name", name="README")
    os.mkfifo(mine / ("1" * 32))  # whoever reads it waits
    (mine / ("2" * 32)).symlink_to(elsewhere)
    (mine / hashlib.blake2b(elsewhere.read_bytes(), digest_size=16).hexdigest()).symlink_to(elsewhere)
    (mine / ("3" * 32)).mkdir()
    put(mine, good)  # in another's name
    put(mine, b"garbage")
    (mine.parent / Identity.generate().id).symlink_to(elsewhere.parent, target_is_directory=True)
    (mine.parent / "not an address").mkdir()
    for number in range(50):
        put(mine, b"flood %d" % number)
    put(theirs, good)
    until(lambda: ada.got_from(bob) == [1])
    until(lambda: ada.admission.refused["malformed"] >= 51)
    assert ada.admission.refused["key"] == 1
    assert ada.dropped == {"size": 1}
    assert ada.faults == 0
    assert b"a file of this machine" not in b"".join(p.read_bytes() for p in theirs.iterdir())
    bob.close()


def test_what_is_half_written_is_read_once_it_is_whole(shared: Path, ada: Node, tmp_path: Path) -> None:
    bob = Node({"transport": "folder", "connect": [str(tmp_path)]})
    data = seal(bob.rollout(), bob.identity, SWARM, time.time())
    name = hashlib.blake2b(data, digest_size=16).hexdigest()
    put(folder_of(shared, bob.identity), data[:50], name)
    time.sleep(0.3)
    assert ada.got_from(bob) == []
    put(folder_of(shared, bob.identity), data, name)
    until(lambda: ada.got_from(bob) == [1])
    assert ada.admission.refused.total() == 0
    bob.close()


def test_old_own_messages_are_deleted_and_others_files_are_not(shared: Path, ada: Node) -> None:
    own, theirs = folder_of(shared, ada.identity), folder_of(shared, Identity.generate())
    old = [put(own, b"of an earlier life"), put(theirs, b"of somebody else"), put(own, b"a note", "note.txt")]
    for path in old:
        os.utime(path, (time.time() - 5000,) * 2)
    for _ in range(folder_module.KEPT[0] + 10):
        ada.share([ada.rollout()])
    until(lambda: ada.status()["sent"]["messages"] == folder_module.KEPT[0] + 10)
    assert [path.exists() for path in old] == [False, True, True]
    assert len([path for path in own.iterdir() if path.suffix == ""]) == folder_module.KEPT[0]


def test_a_folder_that_goes_away_comes_back(shared: Path, ada: Node) -> None:
    away = shared.with_name("away")
    shared.rename(away)
    until(lambda: "the folder is not there" in ada.status()["note"])
    away.rename(shared)

    def shared_again() -> bool:
        ada.share([ada.rollout()])
        time.sleep(0.05)
        return folder_of(shared, ada.identity).exists()

    until(shared_again)
    until(lambda: "the folder" not in ada.status()["note"])
    assert ada.faults == 0


def test_a_link_in_place_of_a_nodes_own_folder_is_not_followed(shared: Path, ada: Node, tmp_path: Path) -> None:
    elsewhere = put(tmp_path / "elsewhere", b"mine", name="4" * 32)
    os.utime(elsewhere, (0, 0))
    own = folder_of(shared, ada.identity)
    own.parent.mkdir(parents=True)
    own.symlink_to(elsewhere.parent, target_is_directory=True)
    ada.share([ada.rollout()])
    until(lambda: "cannot be written" in ada.status()["note"])
    assert [path.name for path in elsewhere.parent.iterdir()] == ["4" * 32]
