"""A place, into which strangers write what they like."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path

import pytest
from test_network import until
from test_transports import SWARM, Node

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.membership.settings import check_network
from shoal.wire.rollouts import seal
from shoal_extras.places import outbox, reader, store, transport
from shoal_extras.places.files import MAX_FILE, hour_of, name_of, pack

Make = Callable[..., Node]


@pytest.fixture(autouse=True)
def quick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store.FolderStore, "every", 0.05)
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    (tmp_path / "shared").mkdir()
    return tmp_path / "shared"


@pytest.fixture
def make(shared: Path) -> Iterator[Make]:
    with ExitStack() as stack:
        yield lambda *words: stack.enter_context(closing(Node({"connect": [*map(str, words)] or [str(shared)]})))


def put(shared: Path, data: bytes, key: str, now: float = 0.0, name: str = "") -> Path:
    """A file as the node with this key writes it."""
    file = name_of(data, key, now or time.time())
    path = shared / "shoal" / SWARM / "open" / file.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path = path.with_name(name or path.name)
    path.write_bytes(data)
    return path


def sealed(node: Node, ahead: float = 0.0) -> bytes:
    return seal(node.rollout(), node.identity, SWARM, time.time() + ahead)


def test_hostile_files_do_no_harm(shared: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    bob, eve = make(tmp_path / "other"), Identity.generate()
    good = pack([("rollouts", sealed(bob))])
    hour = put(shared, good, eve.id).parent  # in another's name
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(pack([("rollouts", b"a file of this machine")]))

    def name(number: int) -> str:
        return name_of(b"%d" % number, eve.id, time.time()).name

    put(shared, b"x" * (MAX_FILE + 1), eve.id)
    put(shared, pack([("rollouts", b"garbage")]), eve.id)
    put(shared, pack([("rollouts", b"")] * 5000), eve.id)
    put(shared, pack([]) + b"r\xff\xff\xff\xff", eve.id)
    put(shared, b"PK\x03\x04", eve.id)
    os.mkfifo(hour / name(1))  # whoever opens it waits
    (hour / name(2)).symlink_to(elsewhere)
    (hour / name_of(elsewhere.read_bytes(), eve.id, time.time()).name).symlink_to(elsewhere)
    (hour / name(3)).symlink_to("/dev/zero")
    (hour / name(4)).mkdir()
    put(shared, b"not a name", eve.id, name="README")
    (hour.parent / "20991231T23").symlink_to(tmp_path, target_is_directory=True)
    (hour.parent / hour_of(time.time() + 3600)).symlink_to(tmp_path, target_is_directory=True)
    (hour.parent / hour_of(time.time() - 3600)).write_bytes(b"a file")
    (hour.parent / "99999999T99").mkdir()
    (hour.parent / "..evil").mkdir()
    ada = make()
    put(shared, good, bob.identity.id)
    until(lambda: ada.got_from(bob) == [1])
    until(lambda: ada.dropped["unreadable file"] >= 5 and ada.dropped["bad file"] >= 4)
    until(lambda: ada.admission.refused == {"key": 1, "malformed": 1})
    assert ada.faults == 0
    until(lambda: "has files of other programs" in ada.status()["warning"])


def test_a_million_names_hide_nobody_who_was_useful(
    shared: Path, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thousand here, and room for fifty."""
    monkeypatch.setattr(reader, "NODES", 50)
    (tmp_path / "other").mkdir()
    ada, bob = make(), make(tmp_path / "other")
    put(shared, pack([("rollouts", sealed(bob))]), bob.identity.id)
    until(lambda: ada.got_from(bob) == [1])
    for _ in range(1000):
        put(shared, os.urandom(50), os.urandom(32).hex())
    until(lambda: ada.dropped["too many nodes"] > 100)
    put(shared, pack([("rollouts", sealed(bob))]), bob.identity.id)
    until(lambda: ada.got_from(bob) == [1, 2])
    assert ada.faults == 0


def test_what_is_half_there_is_named_and_read_once_it_is_whole(shared: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ada, bob = make(), make(tmp_path / "other")
    data = pack([("rollouts", sealed(bob))])
    path = put(shared, data, bob.identity.id)
    path.write_bytes(data[:50])
    until(lambda: "not all there yet" in ada.status()["warning"])
    assert ada.got_from(bob) == []
    path.write_bytes(data)
    until(lambda: ada.got_from(bob) == [1])
    until(lambda: ada.status()["warning"] == "")
    path.write_bytes(b"changed after it was read")
    assert ada.admission.refused.total() == 0


def test_a_place_that_is_away_for_long_gets_all_when_it_is_back(
    shared: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outbox, "WAITING", 2 * outbox.FULL)  # two files, however little is in them
    monkeypatch.setattr(transport, "SLOWEST", 1.0)
    ada = make()
    away = shared.with_name("away")
    shared.rename(away)
    until(lambda: "the folder is not there" in ada.status()["note"])
    for number in range(10):
        ada.share([ada.rollout() for _ in range(2)])
        until(lambda number=number: ada.status()["sent"]["messages"] == 2 * number + 2)
        time.sleep(0.3)
    until(lambda: "what this node shares waits here" in ada.status()["warning"])
    away.rename(shared)
    bob = make()
    until(lambda: sorted(bob.got_from(ada)) == list(range(1, 21)))
    until(lambda: ada.status()["warning"] == "")
    assert ada.faults == 0


def test_a_full_disk_of_this_machine_is_named_and_loses_nothing(
    shared: Path, make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "home").write_text("no folder can be made here")
    ada, bob = make(), make()
    ada.share([ada.rollout()])
    until(lambda: "waits in memory" in ada.status()["warning"])
    (tmp_path / "home").unlink()
    until(lambda: bob.got_from(ada) == [1])
    until(lambda: ada.status()["warning"] == "")


def test_no_link_is_followed_to_write(shared: Path, make: Make, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (shared / "shoal").symlink_to(elsewhere, target_is_directory=True)
    ada = make()
    ada.share([ada.rollout()])
    until(lambda: "cannot be written" in ada.status()["warning"])
    assert list(elsewhere.iterdir()) == []


def test_who_comes_days_later_learns_from_what_is_there(shared: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    bob, day = make(tmp_path / "other"), 86_400
    for days in (3, 2, 20):
        put(shared, pack([("rollouts", sealed(bob, -days * day))]), bob.identity.id, time.time() - days * day)
    ada = make()
    until(lambda: sorted(ada.got_from(bob)) == [1, 2])
    assert ada.status()["warning"] == "", "it waited, no clock is wrong"
    assert ada.admission.refused.total() == 0, "what is too old is not even read"
    late = pack([("rollouts", sealed(bob, -1.5 * day))])  # it was on its way for long
    put(shared, late, bob.identity.id, time.time() - 1.5 * day)
    until(lambda: 4 in ada.got_from(bob))


def test_a_node_that_begins_again_on_another_day_is_heard(shared: Path, make: Make, tmp_path: Path) -> None:
    """Its rounds begin at 1 again, whatever is read first; what was seen is not taken twice."""
    (tmp_path / "other").mkdir()
    ada, bob, day = make(), make(tmp_path / "other"), 86_400
    for start, ago in ((500, day), (0, 3600)):
        bob.round = start
        data = [("rollouts", sealed(bob, 30 * number - ago)) for number in range(5)]
        put(shared, pack(data), bob.identity.id, time.time() - ago)
        until(lambda start=start: ada.got_from(bob)[-5:] == [start + number for number in range(1, 6)])
    assert ada.admission.refused.total() == 0
    old = next(path for path in sorted(shared.rglob("2*-*")))
    put(shared, old.read_bytes(), bob.identity.id)  # somebody adds a copy of yesterday's file
    until(lambda: ada.admission.refused == {"round": 5})
    late = make()
    until(lambda: {1, 2, 3, 4, 5} <= set(late.got_from(bob)))


def test_a_clock_that_is_off_is_named(shared: Path, make: Make, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    ada, bob = make(), make(tmp_path / "other")
    put(shared, pack([("rollouts", sealed(bob, 7200))]), bob.identity.id, time.time() + 7200)
    until(lambda: f"that of {bob.identity.name} is about 120 min ahead" in ada.status()["warning"])
    (tmp_path / "later").mkdir()
    put(tmp_path / "later", b"", bob.identity.id, time.time() + 9e6)
    eve = make(tmp_path / "later")
    until(lambda: "is the clock of this machine wrong?" in eve.status()["warning"])


def test_own_files_are_removed_when_they_are_too_many_and_others_are_not(
    shared: Path, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = put(shared, b"of somebody else", Identity.generate().id)
    ada = make()
    hour = theirs.parent

    def own() -> list[Path]:
        return sorted(path for folder in hour.parent.iterdir() for path in folder.glob(f"2*-{ada.identity.id}-*"))

    for number in range(3):
        ada.share([ada.rollout()])
        until(lambda number=number: len(own()) == number + 1)
    files = own()
    ada.transport._keep = sum(path.stat().st_size for path in files[1:])
    ada.transport._pruned = -1e9
    until(lambda: not files[0].exists())
    assert [path for path in (*files[1:], theirs) if not path.exists()] == [], (ada.transport._keep, files)


def test_a_list_of_members(tmp_path: Path, make: Make) -> None:
    """Each writes to its own place, and reads those of all; what is not signed does not count."""
    members = tmp_path / "lagoon.members"
    members.write_text("# our swarm\n")
    places = [tmp_path / name for name in ("ada", "bob", "eve")]
    for place in places:
        place.mkdir()
    with pytest.raises(UserError, match="does not have this node: name its own place, too"):
        make(members)
    nodes = [make(members, place) for place in places[:2]]
    lines = [node.status()["warning"].partition(f"{members}: ")[2] for node in nodes]
    eve = make(tmp_path / "eve")
    stolen = lines[0].replace(str(places[0]), str(places[2]))
    members.write_text("\n".join([*lines, stolen, "garbage", "\x00"]))
    again = make(members, places[0])  # another node, which the list does not have
    for node in nodes:
        node.share([node.rollout()])
    put(places[1], pack([("rollouts", sealed(eve))]), eve.identity.id)  # not its place
    until(lambda: again.got_from(nodes[0]) == [1] and again.got_from(nodes[1]) == [1])
    assert again.got_from(eve) == []


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["/nowhere/at/all"], "there is no folder /nowhere/at/all: make it first"),
        (["a", "b"], "name one place, or a list of members"),
        (["simplecache::s3://bucket/x"], "a place is one URL, without ::"),
        (["nothing://x"], "another package|is no place"),
    ],
)
def test_words_that_are_no_place(words: list[str], says: str, tmp_path: Path) -> None:
    from shoal.config.settings import Config

    network = {"transport": "place", "connect": words}
    with pytest.raises(UserError, match=says):
        check_network(Config.model_validate({"network": network}))


def test_the_form_of_an_endpoint_chooses_the_transport(tmp_path: Path) -> None:
    from shoal.config.sections import NetworkConfig

    def carrier(*words: str) -> str:
        return NetworkConfig(connect=list(words)).carrier

    assert {carrier(word) for word in (str(tmp_path), "~/x", "./x", "s3://b/x", "hf://datasets/a/b")} == {"place"}
    assert {carrier(), carrier("relay.example.org:7447"), carrier("tls/10.0.0.1:7447")} == {"zenoh"}
    assert transport.PlaceTransport.__module__ == "shoal_extras.places.transport"
