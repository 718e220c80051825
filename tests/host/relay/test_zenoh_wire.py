"""What is read of Zenoh's protocol, from bytes. Real sessions are in `test_relay`."""

from __future__ import annotations

import random

import pytest

from shoal_host.relay.forwarder import BURST, RATE, AddressUsage
from shoal_host.relay.zenoh_wire import FULL, MAX_CHUNKS, MAX_KEY, PART, QUERY, STAR, NoClient, Reader, Unreadable

HELLO = b"\x01\x09\xf2" + bytes(16), b"\x42\x0a\x00\x00"


def number(value: int) -> bytes:
    low, value = value & 0x7F, value >> 7
    return bytes([low | 0x80]) + number(value) if value else bytes([low])


def key(text: str, scope: int = 0) -> bytes:
    return number(scope) + number(len(text)) + text.encode()


def declare(kind: int, id: int, name: bytes, flags: int = 0x20) -> bytes:
    return bytes([0x1E, kind | flags]) + number(id) + name


def undeclare(kind: int, id: int) -> bytes:
    return bytes([0x1E, kind + 1]) + number(id)


def frame(*messages: bytes) -> bytes:
    return b"\x25\x00" + b"".join(messages)


@pytest.fixture
def reader() -> Reader:
    reader = Reader()
    assert [reader.batch(batch) for batch in HELLO] == [0, 0]
    return reader


def asked(reader: Reader, *messages: bytes) -> float:
    data = frame(*messages)
    return reader.batch(data) - len(data) / FULL


def test_what_is_declared_is_counted_until_it_is_taken_back(reader: Reader) -> None:
    kinds = (0, 2, 4, 6)
    assert asked(reader, *(declare(kind, 7, key("shoal/a")) for kind in kinds)) == pytest.approx(4, abs=0.1)
    assert reader.declarations.cost == 4
    asked(reader, *(undeclare(kind, 7) for kind in kinds), undeclare(2, 99))
    assert reader.declarations.cost == 0
    asked(reader, b"\x79\x05\x33" + key("shoal/b"))
    assert reader.declarations.cost == 1
    asked(reader, b"\x19\x05")
    assert reader.declarations.cost == 0


def test_one_number_for_two_declarations_is_refused(reader: Reader) -> None:
    asked(reader, declare(4, 1, key("shoal/a")), declare(4, 1, key("shoal/a")))
    assert reader.declarations.cost == 1
    with pytest.raises(Unreadable, match="one number"):
        asked(reader, declare(4, 1, key("shoal/b")))


def test_what_somebody_was_interested_in_is_told_when_it_is_over(reader: Reader) -> None:
    asked(reader, declare(0, 9, key("shoal")), b"\x79\x05\x73" + key("/a", scope=9), b"\x79\x06\x33" + key("shoal/b"))
    asked(reader, b"\x39\x07\x38" + key("shoal/c"), declare(2, 1, key("shoal/d")), b"\x19\x05")
    assert reader.declarations.over == ["shoal/a", "shoal/c"]
    reader.declarations.close()
    assert reader.declarations.over == ["shoal/a", "shoal/c", "shoal/b"]
    assert reader.declarations.cost == 0


def test_patterns_count_for_more(reader: Reader) -> None:
    assert asked(reader, declare(2, 1, key("shoal/*/a$*"))) == pytest.approx(1 + 2 * STAR, abs=0.1)
    assert asked(reader, b"\x3c\x01" + key("shoal/**") + b"\x03") == pytest.approx(QUERY, abs=0.1)


def test_names_that_go_on_from_others_count_in_full(reader: Reader) -> None:
    asked(reader, declare(0, 1, key("a" * 300)), declare(0, 2, key("**")), declare(0, 3, key("a/" * (MAX_CHUNKS - 1))))
    for longer in (
        declare(2, 1, key("a" * (MAX_KEY - 299), scope=1), 0x60),
        declare(2, 1, key("/**", scope=2), 0x60),
        declare(2, 1, key("a/", scope=3), 0x60),
    ):
        with pytest.raises(Unreadable, match="too long or matches too much"):
            asked(reader, longer)


@pytest.mark.parametrize("kind", [0, 2, 4, 6])
def test_nobody_continues_a_key_expression_of_the_relay(reader: Reader, kind: int) -> None:
    """This side does not read what the relay declares, so the whole would have no bounds."""
    put, asks = b"\x1d" + number(7) + b"\x01\x01x", b"\x1c\x01" + number(7) + b"\x03"
    declared = [declare(kind, 1, key("/**", scope=7))] if kind else []
    for message in (*declared, put, asks, b"\x79\x05\x33" + key("/**", scope=7)):
        with pytest.raises(Unreadable, match="one of the relay's"):
            asked(reader, message)
    with pytest.raises(Unreadable, match="unknown"):
        asked(reader, declare(2, 1, number(9), 0x40))


@pytest.mark.parametrize("text", ["**/a/**/b", "a/x$*y$*z", "a/" * MAX_CHUNKS])
def test_keys_that_take_long_to_compare_are_refused(reader: Reader, text: str) -> None:
    query, put = b"\x3c\x01" + key(text) + b"\x03", b"\x3d" + key(text) + b"\x01\x01x"
    for message in (query, put, declare(2, 1, key(text)), b"\x66\x00" + put):
        with pytest.raises(Unreadable, match="matches too much"):
            asked(reader, message)


def test_data_for_several_keys_is_refused(reader: Reader) -> None:
    put = b"\x3d" + key("shoal/*") + b"\x01\x01x"
    for message in (put, b"\x66\x00" + put):
        with pytest.raises(Unreadable, match="several keys"):
            asked(reader, message)
    with pytest.raises(Unreadable, match="key expression in fragments"):
        asked(reader, b"\x66\x00\x3d" + number(0) + number(9) + b"shoal")


def test_what_an_unreadable_batch_asks_is_counted_and_forgotten(reader: Reader) -> None:
    """Zenoh never sees it, so it has nothing to forget."""
    asked(reader, b"\x79\x05\x33" + key("shoal/a"))
    brief, holds = b"\x39\x06\x38" + key("shoal/b"), b"\x79\x07\x33" + key("shoal/c")
    with pytest.raises(Unreadable):
        asked(reader, brief, holds, declare(2, 1, key("d")), b"\x19\x05", b"\x07")
    assert reader.cost == pytest.approx(4, abs=0.1)
    assert reader.declarations.over == ["shoal/a"]
    reader.declarations.close()
    assert reader.declarations.over == ["shoal/a"]
    assert reader.declarations.cost == 0


def test_a_message_cannot_hide_in_another(reader: Reader) -> None:
    reply = b"\xbb\x01" + key("shoal/a")
    who = b"\x43" + number(3) + b"\0z\x01" + b"\x04\x01" + number(3) + b"abc"
    assert asked(reader, reply + who, declare(2, 1, key("a"))) == pytest.approx(1)
    put = b"\x3d" + key("shoal/a")
    for wrong in (
        reply + who.replace(number(3), number(90), 1) + bytes(90),  # Zenoh does not look at this length
        put + b"\x81\x41" + number(4) + b"\0z\x01\x02" + number(3) + b"abc",  # who made it
        put + b"\x81\x12" + number(3) + b"abc",  # shared memory
        put + b"\x21" + bytes(9),  # a time
        put + b"\x02",  # a deletion
        b"\x66\x00\x3e",  # a declaration that begins in a fragment
        b"\x1f\x00",
        b"\xbc\x01" + key("a") + b"\x26" + number(10_000_000) + b"\x03",  # a query that stays open for hours
        b"\x3d" + key("shoal/a") + b"\x01\xff\xff\x03",
        b"\x07",
    ):
        with pytest.raises(Unreadable):
            asked(reader, wrong)


def test_a_declaration_cannot_hide_behind_a_gap_in_the_numbers(reader: Reader) -> None:
    """There Zenoh drops the message that had begun, and takes the next part for the first one of another."""
    put = b"\x7d" + key("shoal/a") + bytes(PART)
    asked(reader, b"\x66\x00" + put)
    asked(reader, b"\x66\x01\x3e" + bytes(PART))
    asked(reader, b"\x26\x02\x3e")
    asked(reader, b"\x66\x08" + put)
    with pytest.raises(Unreadable, match="in fragments"):
        asked(reader, b"\x66\x0a\x3e")


def test_numbers_of_fragments_begin_anew(reader: Reader) -> None:
    asked(reader, b"\x66" + number(2**28 - 1) + b"\x7d" + key("shoal/a") + bytes(PART))
    asked(reader, b"\x26\x00\x3e")


def test_what_begins_otherwise_is_no_session() -> None:
    for first in (b"GET / HTTP/1.1\r\n", b"\x16\x03\x01", b"\x01\x0a\x22", b"\x05\x00", b"\x01"):
        with pytest.raises(Unreadable):
            Reader().batch(first)


@pytest.mark.parametrize("whatami", [0, 1, 3])
def test_nobody_but_a_client_is_read(whatami: int) -> None:
    with pytest.raises(NoClient):
        Reader().batch(bytes([1, 9, 0xF0 | whatami]) + bytes(16))


def test_a_client_cannot_become_part_of_the_network_of_relays(reader: Reader) -> None:
    """An extension of the handshake could say so, and one of a message which relay it came from."""
    greeting = Reader()
    greeting.batch(HELLO[0])
    with pytest.raises(Unreadable, match="extensions"):
        greeting.batch(bytes([HELLO[1][0] | 0x80]) + HELLO[1][1:] + b"\x27\x01")
    with pytest.raises(Unreadable, match="extension"):
        asked(reader, b"\xbd" + key("shoal/a") + b"\x33\x01" + b"\x01\x01x")


@pytest.mark.parametrize("psid", [1, 2**32, 2**60])
def test_what_is_said_about_the_network_is_refused(reader: Reader, psid: int) -> None:
    """Zenoh makes a table with as many rows as the number of a relay says."""
    state = number(3) + number(psid) + b"\x01\x10" + bytes(16) + b"\x01\x00"
    body = number(1) + state
    with pytest.raises(Unreadable, match="kind 31"):
        asked(reader, b"\x5f\x01" + number(len(body)) + body)


def test_a_session_has_two_unfinished_messages_at_most(reader: Reader) -> None:
    """Reliable and unreliable; with priorities there would be sixteen."""
    begins = b"\x7d" + key("shoal/a")
    for priority in range(8):
        for kind in (b"\xe6", b"\xc6"):
            with pytest.raises(Unreadable, match="fragment"):
                asked(reader, kind + b"\x00\x31" + number(priority) + begins)
    for kind in (b"\x66", b"\x46"):
        reader.batch(kind + b"\x00" + begins + bytes(PART))


def test_small_parts_of_messages_that_go_on_are_refused(reader: Reader) -> None:
    """Zenoh keeps a whole buffer for each. The last part may be small."""
    reader.batch(b"\x66\x00\x7d" + key("shoal/a") + bytes(PART))
    reader.batch(b"\x26\x01x")
    reader.batch(b"\x66\x02\x7d" + key("shoal/a") + bytes(PART))
    with pytest.raises(Unreadable, match="small part"):
        reader.batch(b"\x66\x03x")


def test_any_bytes_are_read_or_unreadable() -> None:
    chance = random.Random(0)
    for _ in range(3000):
        reader = Reader()
        for batch in HELLO:
            reader.batch(batch)
        parts = [declare(2, 1, key("shoal/a")), b"\x3d" + key("a") + b"\x01\x01x", chance.randbytes(9), b"\x79\x05\x33"]
        data = bytearray(frame(*chance.choices(parts, k=4)))
        data[chance.randrange(len(data))] = chance.randrange(256)
        try:
            assert reader.batch(bytes(data)) >= 0
        except Unreadable:
            continue


def test_who_asks_too_fast_waits() -> None:
    usage = AddressUsage(0.0)
    usage.spend(BURST, 0)
    assert usage.wait(0.0) == 0
    usage.spend(RATE, 0)
    assert usage.wait(0.0) == pytest.approx(1)
    assert usage.wait(1.0) == 0
    assert not usage.idle(1.0)
    assert usage.idle(1.0 + BURST / RATE)
