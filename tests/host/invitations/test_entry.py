"""Entries: who signed one is who it says, nothing can be changed, and nothing but what is allowed comes in."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from swarm_entries import KEY, NOW, entry, signed, signed_badly

from shoal.config.load import make_config
from shoal.identity.keys import Identity
from shoal.tasks.suites import SUITES, specs_of
from shoal_host.invitations.entry import DAY, DOMAIN, LONGEST, BadEntry, Entry, EntryTasks
from shoal_host.invitations.invitation import AHEAD, Invitation, read_invitation, sign_entry, written

HOST = Identity.generate()


def why(word: str) -> str:
    with pytest.raises(BadEntry) as caught:
        read_invitation(word, NOW)
    return str(caught.value)


def test_what_was_signed_is_what_is_read() -> None:
    made = signed(HOST)
    assert read_invitation(written(made), NOW) == made
    assert made.entry.host == HOST.name


def test_the_signed_bytes_are_those_of_the_documentation() -> None:
    """docs/reference/wire-format.md: an array of the fields in their order, behind the domain."""
    made = signed(HOST)
    fields = "name about relays tasks judges certificate key signed expires".split()
    plain = msgspec.msgpack.encode([getattr(made.entry, name) for name in fields])
    assert HOST.sign(DOMAIN + plain) == made.signature


CHANGES: list[dict[str, Any]] = [
    {"name": "lagoon"},
    {"about": "Hard arithmetic."},
    {"relays": ("evil.example.org:7447",)},
    {"relays": ("relay.example.org:7447", "evil.example.org:7447")},
    {"tasks": EntryTasks("paper")},
    {"tasks": EntryTasks("reef", ("products",), "strict")},
    {"judges": (f"https://evil.example.org#{KEY}",)},
    {"judges": ()},
    {"certificate": "cd" * 32},
    {"key": Identity(Ed25519PrivateKey.from_private_bytes(bytes(32))).id},
    {"signed": NOW - 1},
    {"expires": NOW + 2 * DAY},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change)[:50])
def test_nobody_can_change_an_entry(change: dict[str, Any]) -> None:
    assert why(written(Invitation(entry(HOST, **change), signed(HOST).signature))).startswith("bad signature")


def test_every_field_is_changed_above() -> None:
    assert {name for change in CHANGES for name in change} == set(Entry.__struct_fields__)


def test_a_signature_for_something_else_is_none() -> None:
    made = entry(HOST)
    assert why(written(Invitation(made, HOST.sign(made.statement.removeprefix(DOMAIN))))).startswith("bad signature")


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expires": NOW}, "expired on 2027-01-15"),
    "from the future": ({"signed": NOW + AHEAD + 1}, "from the future"),
    "for ever": ({"expires": NOW + LONGEST}, "at most 400 days"),
    "unknown suite": ({"tasks": EntryTasks("ocean")}, "no suite 'ocean'"),
    "unknown task": ({"tasks": EntryTasks("reef", ("bf",))}, "no task 'bf'"),
    "no port": ({"relays": ("relay.example.org",)}, "relays: 'relay.example.org' is no endpoint"),
    "a pipe": ({"relays": ("unixpipe//tmp/x:1",)}, "no endpoint"),
    "options of zenoh": ({"relays": ("tcp/relay.example.org:7447#iface=lo",)}, "no endpoint"),
    "a judge without its key": ({"judges": ("https://judge.example.org",)}, "#KEY"),
    "a judge's path": ({"judges": (f"http://192.168.0.1/reboot#{KEY}",)}, "#KEY"),
    "a judge's query": ({"judges": (f"http://192.168.0.1?reboot#{KEY}",)}, "#KEY"),
    "a judge with a password": ({"judges": (f"http://me:secret@judge.example.org#{KEY}",)}, "#KEY"),
    "a judge that is a file": ({"judges": (f"file:///etc/passwd#{KEY}",)}, "is no judge"),
}


@pytest.mark.parametrize("name", BAD)
def test_what_even_the_host_cannot_say(name: str) -> None:
    changes, right = BAD[name]
    assert right in why(signed_badly(HOST, **changes))


@pytest.mark.parametrize("name", sorted(set(BAD) - {"expired", "from the future"}))
def test_a_host_is_told_before_it_signs(name: str) -> None:
    with pytest.raises(BadEntry):
        sign_entry(entry(HOST, **BAD[name][0]), HOST)


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a number for a name": ({"name": 5}, "Expected `str`"),
    "a name that is an address": ({"name": "a.b"}, "matching regex"),
    "a name with a sign": ({"name": "reef@x"}, "matching regex"),
    "a name of two lines": ({"name": "reef\n"}, "matching regex"),
    "no relays": ({"relays": ()}, "length >= 1"),
    "many relays": ({"relays": ("a:1",) * 9}, "length <= 8"),
    "a long line": ({"about": "a" * 161}, "length <= 160"),
    "a number that is too large": ({"expires": 2**60}, "<= "),
    "a fraction": ({"signed": 0.5}, "Expected `int`"),
    "a short key": ({"key": "ab" * 31}, "matching regex"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_entry(name: str) -> None:
    changes, right = WRONG[name]
    said = why(signed_badly(HOST, **changes))
    assert right in said
    assert len(said) < 200


def test_an_entry_sets_nothing_else() -> None:
    """Swarm, relays, judges and the suite; and no code, although the settings could name some."""
    settings = signed(HOST).entry.settings
    assert set(settings) == {"network", "tasks", "evaluation"}
    assert set(settings["network"]) == {"name", "connect"}
    assert set(settings["evaluation"]) == {"judges"}
    assert set(settings["tasks"]) == {"suite", "only", "examples", "answer", "sources"}
    config = make_config(settings, "the entry")
    assert config.tasks.sources == []
    assert specs_of(config.tasks) == SUITES["reef"]
