"""Invitations: what was written is read, nothing else is, and nothing comes in that an entry may not have."""

from __future__ import annotations

import base64
import contextlib
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from swarm_entries import KEY, NOW, entry, signed

from shoal.cli.swarms import is_invitation
from shoal.identity.keys import Identity
from shoal_host.invitations.entry import DAY, BadEntry, EntryTasks
from shoal_host.invitations.invitation import LONGEST, PREFIX, Invitation, read_invitation, written

HOST = Identity.generate()
CERTIFICATE = "cd" * 32
RELAY = ("tls/192.0.2.7:7447",)


def invitation(secret: str = "", **changes: Any) -> Invitation:
    return signed(HOST, secret, **{"relays": RELAY, "certificate": CERTIFICATE, **changes})


def word_of(body: bytes) -> str:
    """An invitation with this body: what anybody's own program can make."""
    return PREFIX + base64.b32encode(body).decode().rstrip("=")


def body_of(word: str) -> bytes:
    text = word.removeprefix(PREFIX)
    return base64.b32decode(text + "=" * (-len(text) % 8))


def why(word: str, now: float = NOW) -> str:
    with pytest.raises(BadEntry) as caught:
        read_invitation(word, now)
    return str(caught.value)


@pytest.mark.parametrize("secret", ["", "correct-horse-battery"])
def test_what_was_written_is_read(secret: str) -> None:
    made = invitation(secret)
    word = written(made)
    assert read_invitation(word, NOW) == made
    assert is_invitation(word)
    assert not is_invitation("relay.example.org:7447")
    assert len(word) < 800


@given(
    about=st.text(st.characters(codec="utf-8"), max_size=40),
    only=st.sampled_from([(), ("chain_sum",)]),
    judges=st.sampled_from([(), (f"https://judge.example.org#{KEY}",)]),
    secret=st.sampled_from(["", "a" * 12, "~" * 128]),
)
@settings(max_examples=30)
def test_any_entry_comes_through(only: Any, secret: str, **fields: Any) -> None:
    made = invitation(secret, tasks=EntryTasks("pond", only), **fields)
    assert read_invitation(written(made), NOW) == made


@given(st.text(max_size=60) | st.text("ABCDEFGHIJKLMNOPQRSTUVWXYZ234567", max_size=200).map(PREFIX.__add__))
def test_no_text_does_harm(text: str) -> None:
    with contextlib.suppress(BadEntry):
        read_invitation(text, NOW)


@given(st.binary(max_size=300) | st.binary(max_size=300).map(b"\x03\x93".__add__))
def test_no_bytes_do_harm(body: bytes) -> None:
    with contextlib.suppress(BadEntry):
        read_invitation(word_of(body), NOW)


@given(st.data())
@settings(max_examples=60)
def test_no_changed_byte_is_taken(data: st.DataObject) -> None:
    """The host has signed all but the secret, which has a form of its own."""
    body = bytearray(body_of(written(invitation())))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] ^= data.draw(st.integers(1, 255))
    why(word_of(bytes(body)))


@pytest.mark.parametrize("at", [9, 50, 300, -9])
def test_a_mistyped_or_cut_line_is_told(at: int) -> None:
    word = written(invitation())
    other = "A" if word[at] != "A" else "B"
    assert "copy the whole line" in why(word[:at] + other + word[at + 1 :])
    assert "copy the whole line" in why(word[: at + 9 if at > 0 else at])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (PREFIX, "not an invitation"),
        (PREFIX + "abc", "not an invitation"),
        (PREFIX + "A" * LONGEST, "too long"),
        (word_of(b"\x02" + b"x"), "it has version 2, and this shoal reads version 3: ask the host for a new one"),
        (word_of(b"\x04" + b"x"), "it has version 4, and this shoal reads version 3: update shoal"),
        (word_of(b"\x03" + b"\xc1"), "malformed"),
        (word_of(b"\x03" + b"\x91" * 400), "malformed"),
        (word_of(b"\x03" + b"\xdd\xff\xff\xff\xff"), "malformed"),
        (word_of(b"\x03" + msgspec.msgpack.encode([""] * 3)), "malformed"),
    ],
)
def test_what_is_none_is_told_so(word: str, told: str) -> None:
    assert told in why(word)


def test_it_holds_as_long_as_its_entry() -> None:
    assert "expired" in why(written(invitation()), NOW + 2 * DAY)
    assert "from the future" in why(written(invitation()), NOW - 2 * DAY)


HOSTILE: list[dict[str, Any]] = [
    {"tasks": EntryTasks("no such suite")},
    {"tasks": EntryTasks("pond", ("os:system",))},
    {"tasks": EntryTasks("../../etc/passwd")},
    {"tasks": EntryTasks("data:secret.jsonl")},
    {"tasks": EntryTasks("evil:Task")},
    {"relays": ("unixsock-stream//tmp/x",)},
    {"relays": ("tcp/192.0.2.7:7447",)},  # nothing there that the certificate could be of
    {"relays": ()},
    {"judges": ("file:///etc/passwd",)},
    {"judges": (f"https://judge.example.org/evil?x#{KEY}",)},
    {"certificate": "cd"},
    {"name": "reef/../**"},
    {"name": "Reef; rm -rf"},
    {"expires": 2**36},
]


@pytest.mark.parametrize("changes", HOSTILE, ids=lambda changes: str(changes)[:40])
def test_nothing_comes_in_that_an_entry_may_not_have(changes: dict[str, Any]) -> None:
    made = entry(HOST, **{"relays": RELAY, "certificate": CERTIFICATE, **changes})
    why(written(Invitation(made, HOST.sign(made.statement))))


@pytest.mark.parametrize("secret", ["short", "with a space", "x" * 129, "\x1b[31m" + "x" * 12, "ü" * 20])
def test_a_secret_has_a_form(secret: str) -> None:
    with pytest.raises(ValueError, match="secret"):
        written(invitation(secret))
    good = written(invitation("correct-horse-battery"))
    fields = msgspec.msgpack.decode(body_of(good)[1:])
    assert "malformed" in why(word_of(b"\x03" + msgspec.msgpack.encode([*fields[:-1], secret])))


def test_there_is_one_way_to_write_it() -> None:
    word = written(invitation())
    fields = msgspec.msgpack.decode(body_of(word)[1:])
    longer = b"\x03\xdc\x00\x03" + b"".join(map(msgspec.msgpack.encode, fields))
    assert "one way" in why(word_of(longer))
