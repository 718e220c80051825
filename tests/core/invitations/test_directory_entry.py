"""Entries: who signed one is who it says, nothing can be changed, and nothing but what is allowed comes in."""

from __future__ import annotations

import contextlib
import json
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st
from swarm_entries import KEY, NOW, entry, signed, signed_badly

from shoal.config.answer_form import FORMS
from shoal.config.load import make_config
from shoal.config.tasks import TaskSpec
from shoal.identity.keys import Identity
from shoal.invitations.entry import (
    AHEAD,
    DAY,
    DOMAIN,
    LONGEST,
    MAX_BYTES,
    BadEntry,
    EntryTasks,
    open_entry,
    sign_entry,
)
from shoal.tasks.suites import SUITES, specs_of

HOST = Identity.generate()


def plain(**changes: Any) -> dict[str, Any]:
    """A good signed entry as plain data."""
    found: dict[str, Any] = json.loads(msgspec.json.encode(signed(HOST, **changes)))
    return found


def why(data: bytes) -> str:
    with pytest.raises(BadEntry) as caught:
        open_entry(data, NOW)
    return str(caught.value)


def test_what_was_signed_is_what_is_read() -> None:
    made = signed(HOST)
    assert open_entry(msgspec.json.encode(made), NOW) == made
    assert made.entry.host == HOST.name


def test_layout_and_order_of_the_json_do_not_matter() -> None:
    shuffled = {"signature": plain()["signature"], "entry": dict(reversed(plain()["entry"].items()))}
    assert open_entry(json.dumps(shuffled, indent=4).encode(), NOW) == signed(HOST)


def test_defaults_may_be_left_out() -> None:
    made = plain(about="", judges=(), rules=())
    for name in ("about", "judges", "rules"):
        del made["entry"][name]
    assert open_entry(json.dumps(made).encode(), NOW) == signed(HOST, about="", judges=(), rules=())


def test_the_signed_bytes_are_those_of_the_documentation() -> None:
    """docs/reference/wire-format.md: sorted keys, no white space, behind the domain."""
    made = plain()
    text = json.dumps(made["entry"], sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert HOST.sign(DOMAIN + text.encode()).hex() == made["signature"]


@dataclass
class Change:
    path: tuple[str, ...]
    value: Any


CHANGES = [
    Change(("name",), "lagoon"),
    Change(("swarm",), "other"),
    Change(("about",), "Hard arithmetic."),
    Change(("relays",), ["evil.example.org:7447"]),
    Change(("relays",), ["relay.example.org:7447", "evil.example.org:7447"]),
    Change(("tasks", "suite"), "paper"),
    Change(("tasks", "only"), ["products"]),
    Change(("tasks",), None),
    Change(("judges",), [f"https://evil.example.org#{KEY}"]),
    Change(("judges",), []),
    Change(("rules",), []),
    Change(("key",), Identity(Ed25519PrivateKey.from_private_bytes(bytes(32))).id),
    Change(("signed",), NOW - 1),
    Change(("expires",), NOW + 2 * DAY),
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: f"{'.'.join(change.path)}={change.value}"[:50])
def test_nobody_can_change_an_entry(change: Change) -> None:
    made = plain()
    inner = made["entry"]
    for part in change.path[:-1]:
        inner = inner[part]
    inner[change.path[-1]] = change.value
    assert why(json.dumps(made).encode()) == "bad signature"


def test_every_field_is_changed_above() -> None:
    assert {change.path[0] for change in CHANGES} == set(plain()["entry"]) - {"version"}


def test_a_signature_for_something_else_is_none() -> None:
    made = plain()
    text = json.dumps(made["entry"], sort_keys=True, separators=(",", ":")).encode()
    made["signature"] = HOST.sign(text).hex()
    assert why(json.dumps(made).encode()) == "bad signature"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "expired": ({"expires": NOW}, "expired on 2027-01-15"),
    "from the future": ({"signed": NOW + AHEAD + 1}, "from the future"),
    "for ever": ({"expires": NOW + LONGEST}, "at most 400 days"),
    "unknown suite": ({"tasks": EntryTasks("ocean")}, "no suite 'ocean'"),
    "unknown task": ({"tasks": EntryTasks("reef", ("bf",))}, "no task 'bf'"),
    "no port": ({"relays": ("relay.example.org",)}, "relays: 'relay.example.org' is no endpoint"),
    "a pipe": ({"relays": ("unixpipe//tmp/x:1",)}, "no endpoint"),
    "options of zenoh": ({"relays": ("tcp/relay.example.org:7447#iface=lo",)}, "no endpoint"),
    "a swarm's name": ({"swarm": "a/**"}, "the swarm 'a/**' must have"),
    "no swarm": ({"swarm": ""}, "must have"),
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
    "an unknown version": ({"version": 2, "planets": 9}, "unknown version 2"),
    "an unknown field": ({"model": "evil/model"}, "unknown field `model`"),
    "code": ({"tasks": {"suite": "reef", "tasks": [{"name": "os:system"}]}}, "unknown field `tasks`"),
    "parameters": ({"tasks": {"suite": "reef", "parameters": {"max_terms": 10**9}}}, "unknown field `parameters`"),
    "a pattern": ({"tasks": {"suite": "reef", "answer": "((a+)+)+(b)"}}, "Invalid enum value"),
    "a number for a name": ({"name": 5}, "Expected `str`"),
    "a name that is an address": ({"name": "a.b"}, "matching regex"),
    "a name with a sign": ({"name": "reef@x"}, "matching regex"),
    "a name of two lines": ({"name": "reef\n"}, "matching regex"),
    "no relays": ({"relays": []}, "length >= 1"),
    "many relays": ({"relays": ["a:1"] * 9}, "length <= 8"),
    "a long line": ({"about": "a" * 161}, "length <= 160"),
    "a number that is too large": ({"expires": 2**60}, "<= "),
    "a fraction": ({"signed": 0.5}, "Expected `int`"),
    "a key in capitals": ({"key": "AB" * 32}, "matching regex"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_no_entry(name: str) -> None:
    changes, right = WRONG[name]
    made = plain()
    made["entry"] |= changes
    said = why(json.dumps(made).encode())
    assert right in said
    assert len(said) < 200


def test_large_and_deep_entries() -> None:
    assert why(b" " * (MAX_BYTES + 1)).startswith("too large")
    assert "malformed" in why(b"[" * MAX_BYTES)
    assert "malformed" in why(b'{"entry":' * (MAX_BYTES // 9))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@given(st.binary(max_size=300))
def test_no_bytes_raise_anything_else(data: bytes) -> None:
    why(data)


@given(JSON, st.sampled_from(["", *plain()["entry"]]))
def test_no_json_raises_anything_else(value: Any, place: str) -> None:
    made = plain()
    if place:
        if made["entry"][place] == value:
            return
        made["entry"][place] = value
    else:
        made = {"entry": value, "signature": made["signature"]}
    why(json.dumps(made).encode())


@given(st.data())
def test_one_flipped_bit_is_noticed_or_means_nothing(data: st.DataObject) -> None:
    whole = bytearray(msgspec.json.encode(signed(HOST)))
    place = data.draw(st.integers(0, len(whole) - 1))
    whole[place] ^= 1 << data.draw(st.integers(0, 7))
    with contextlib.suppress(BadEntry):
        assert open_entry(bytes(whole), NOW) == signed(HOST)


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


def test_forms_of_answers_are_those_of_the_settings() -> None:
    for form in ("task", *FORMS):
        assert open_entry(signed_badly(HOST, tasks=EntryTasks("pond", answer=form)), NOW)  # type: ignore[arg-type]
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"suite": "pond", "answer": "(.+)"}, EntryTasks)


def test_tasks_say_what_has_to_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    assert EntryTasks("reef").needs == []
    specs = [TaskSpec(name=name) for name in ("programs", "drawings", "count_dots", "chain_sum")]
    monkeypatch.setattr("shoal.invitations.entry.specs_of", lambda config: specs)
    assert EntryTasks("reef").needs == ["shoal[code]", "shoal[drawings]"]
