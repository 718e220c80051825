"""Which host a name means, and that an entry leads nobody into his own networks."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from swarm_entries import KEY, listed

from shoal.errors import UserError
from shoal.identity.keys import Identity
from shoal.invitations.pinned import DIGITS, is_name, known_swarms, remember
from shoal_host.directory import choice
from shoal_host.directory.choice import choose, is_public, looked_up, within_reach
from shoal_host.directory.listing import Listing, Unusable

ADA, EVE = Identity.generate(), Identity.generate()
URL = "https://example.org/swarms.json"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("SHOAL_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


def why(listing: Listing, word: str, known: dict[str, str] | None = None) -> str:
    with pytest.raises(UserError) as caught:
        choose(listing, word, known or {})
    return str(caught.value)


def of(*identities: Identity) -> Listing:
    return Listing([listed(identity) for identity in identities])


@pytest.mark.parametrize(
    ("word", "right"),
    [
        ("reef", True),
        ("reef-2", True),
        (f"reef@{ADA.id[:DIGITS]}", True),
        (f"reef@{ADA.id}", True),
        ("reef@abc", False),  # anybody makes a key that begins so
        ("relay.example.org", False),
        ("127.0.0.1:7447", False),
        ("tcp/relay:7447", False),
        ("Reef", False),
        ("-reef", False),
        ("a" * 33, False),
        ("", False),
    ],
    ids=map(str, range(12)),
)
def test_what_is_a_name(word: str, right: bool) -> None:
    assert is_name(word) is right


def test_the_first_host_of_a_name_is_new_and_then_known() -> None:
    first = choose(of(ADA), "reef", known_swarms())
    assert (first.listed.entry.key, first.is_new, first.note) == (ADA.id, True, "")
    remember(first.listed.entry)
    assert known_swarms() == {"reef": ADA.id}
    assert not choose(of(ADA), "reef", known_swarms()).is_new


def test_another_key_with_a_known_name_is_not_taken() -> None:
    said = why(of(EVE), "reef", {"reef": ADA.id})
    assert said.startswith("ANOTHER HOST: the name 'reef' belongs to the key " + ADA.id[:DIGITS])
    assert f"reef@{EVE.id[:DIGITS]} ({EVE.name})" in said
    chosen = choose(of(EVE), f"reef@{EVE.id[:DIGITS]}", {"reef": ADA.id})
    assert chosen.is_new
    remember(chosen.listed.entry)  # the user said so
    assert known_swarms() == {"reef": EVE.id}


def test_a_known_host_beside_another_is_taken_and_the_other_named() -> None:
    chosen = choose(of(EVE, ADA), "reef", {"reef": ADA.id})
    assert chosen.listed.entry.key == ADA.id
    assert EVE.id[:DIGITS] in chosen.note


def test_of_several_unknown_hosts_the_user_chooses() -> None:
    said = why(of(EVE, ADA), "reef")
    assert all(f"reef@{one.id[:DIGITS]}" in said for one in (ADA, EVE))
    assert choose(of(EVE, ADA), f"reef@{ADA.id}", {}).listed.entry.key == ADA.id
    assert "no host of 'reef' has a key" in why(of(EVE), f"reef@{ADA.id}")


def test_hundreds_of_hosts_of_one_name_are_one_line() -> None:
    said = why(of(*(Identity.generate() for _ in range(100))), "reef")
    assert len(said) < 400
    assert "and 96 more" in said


def test_why_a_name_is_not_there() -> None:
    listing = Listing([listed(ADA)], [Unusable("a.json", "late", "expired on 2026-01-01"), Unusable("b", "", "b away")])
    assert why(listing, "late") == "the entry 'late' of a.json cannot be used: expired on 2026-01-01"
    assert why(listing, "tide") == "no directory has a swarm 'tide'; there are reef; b away"
    assert why(Listing(), "tide") == "no directory has a swarm 'tide'; none is listed"


@pytest.mark.parametrize("text", ["reef", "reef key more", "\xff"])
def test_a_damaged_file_of_names_is_said(text: str, home: Path) -> None:
    home.mkdir()
    (home / "known_swarms").write_bytes(text.encode("latin-1"))
    with pytest.raises(UserError, match="known_swarms is damaged"):
        known_swarms()


# Addresses


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "10.1.2.3", "172.16.0.1", "192.168.1.1", "169.254.169.254", "100.64.0.1", "0.0.0.0"),
        *("224.0.0.1", "255.255.255.255", "::1", "::", "fe80::1", "fe80::1%eth0", "fd00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "64:ff9b::7f00:1", "2002:7f00:1::"),
        *("fec0::1", "64:ff9b:1::7f00:1"),
    ],
)
def test_private_addresses(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "::ffff:8.8.8.8", "64:ff9b::808:808"])
def test_public_addresses(address: str) -> None:
    assert is_public(address)


@pytest.fixture
def names(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The addresses of names; "slow" for one that takes too long."""
    known: dict[str, str] = {"relay.example.org": "8.8.8.8", "judge.example.org": "8.8.4.4"}
    over = threading.Event()

    def find(host: str, *_: Any, **__: Any) -> list[tuple[Any, ...]]:
        address = known.get(host, "")
        if address == "slow":
            over.wait(60)
        if not address and not host[0].isdigit():
            raise socket.gaierror("not known")
        return [(0, 0, 0, "", (address or host, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", find)
    monkeypatch.setattr(choice, "PATIENCE", 0.5)
    yield known
    over.set()


def test_public_addresses_pass(names: dict[str, str]) -> None:
    one = listed(ADA, URL)
    assert within_reach(one, allow_private=False) == (one.entry, [])


@pytest.mark.parametrize("host", ["127.0.0.1", "192.168.1.1", "169.254.169.254", "inside.example.org"])
@pytest.mark.parametrize("where", ["relays", "judges"])
def test_no_entry_of_a_url_leads_inside(names: dict[str, str], host: str, where: str) -> None:
    names["inside.example.org"] = "10.0.0.1"
    place = f"{host}:7447" if where == "relays" else f"http://{host}#{KEY}"
    ok = ("relay.example.org:7447",) if where == "relays" else ()
    one = listed(ADA, URL, **{where: (*ok, place)})
    with pytest.raises(UserError, match=rf"{host}.*no public address.*--allow-private"):
        within_reach(one, allow_private=False)
    assert within_reach(one, allow_private=True) == (one.entry, [])
    here = listed(ADA, "here.json", **{where: (*ok, place)})
    assert within_reach(here, allow_private=False) == (here.entry, [])


def test_addresses_that_nobody_knows_are_left_out(names: dict[str, str]) -> None:
    """Also since the name may lead inside a moment later."""
    names["slow.example.org"] = "slow"
    away, slow = "away.example.org:1", f"https://slow.example.org#{KEY}"
    entry, lost = within_reach(listed(ADA, URL, relays=(away, "relay.example.org:7447"), judges=(slow,)), False)
    assert (entry.relays, entry.judges) == (("relay.example.org:7447",), ())
    assert lost == [away, slow]
    with pytest.raises(UserError, match="none of the relays of 'reef'"):
        within_reach(listed(ADA, URL, relays=(away,)), False)


def test_names_that_are_slow_are_looked_up_together(names: dict[str, str]) -> None:
    names |= {f"slow{n}.example.org": "slow" for n in range(8)}
    found = looked_up(names, 0.5)
    assert found["relay.example.org"] == ["8.8.8.8"]
    assert found["slow0.example.org"] == []
